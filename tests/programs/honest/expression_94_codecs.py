# name: expression: 94 codecs
# input: ""
# ---
import codecs
print(codecs.encode("abc", "rot13"), codecs.decode(b"\xe9", "latin-1"), codecs.lookup("utf8").name)
