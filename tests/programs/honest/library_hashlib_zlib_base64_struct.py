# name: library: hashlib, zlib, base64, struct
# input: ""
# output: "d41d True aGk= 513\n"
# ---
import base64, hashlib, struct, zlib
print(hashlib.md5(b'').hexdigest()[:4], len(zlib.compress(bytes(999))) < 99,
      base64.b64encode(b'hi').decode(), struct.unpack('<H', b'\1\2')[0])
