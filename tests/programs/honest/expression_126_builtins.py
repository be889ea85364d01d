# name: expression: 126 builtins
# input: ""
# ---
import builtins
print(ord("é"), chr(128512), ascii("é😀"), repr("a'b\n\x00"), "\N{BULLET}", len("👨‍👩‍👧"), "é".encode(), b"\xff".decode("latin-1"))
