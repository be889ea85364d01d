# name: expression: 63 gzip
# input: ""
# ---
import gzip
print(gzip.decompress(gzip.compress(b"x" * 999)) == b"x" * 999)
