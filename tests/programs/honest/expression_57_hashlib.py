# name: expression: 57 hashlib
# input: ""
# ---
import hashlib
print(hashlib.sha256(b"x").hexdigest(), hashlib.md5(b"").digest()[:2], hashlib.blake2b(b"a", digest_size=4).hexdigest())
