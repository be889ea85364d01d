# name: streams: other line separators
# input: "a\u000bbc d\ne"
# output: "[\"'a\\\\x0bb\\\\x85c\\\\u2028d\\\\n'\", \"'e'\"]\n"
# ---
import sys
print([ascii(x) for x in sys.stdin])
