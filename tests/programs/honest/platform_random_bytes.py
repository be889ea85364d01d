# name: platform: random bytes
# input: ""
# output: "8 8\n0 b'\\x00\\x00'\n"
# ---
import os, secrets
print(len(open('/dev/urandom', 'rb').read(8)), len(os.urandom(8)))
print(secrets.randbelow(1), open('/dev/zero', 'rb').read(2))
