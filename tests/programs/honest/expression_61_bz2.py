# name: expression: 61 bz2
# input: ""
# ---
import bz2
print(bz2.decompress(bz2.compress(b"x" * 999)) == b"x" * 999)
