# name: expression: 58 zlib
# input: ""
# ---
import zlib
print(zlib.crc32(b"hello"), zlib.adler32(b"a"), zlib.decompress(zlib.compress(b"ab" * 99)) == b"ab" * 99)
