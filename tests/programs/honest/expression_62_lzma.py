# name: expression: 62 lzma
# input: ""
# ---
import lzma
print(lzma.decompress(lzma.compress(b"x" * 999)) == b"x" * 999)
