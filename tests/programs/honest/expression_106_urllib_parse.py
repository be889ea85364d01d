# name: expression: 106 urllib.parse
# input: ""
# ---
import urllib.parse
print(urllib.parse.quote("a b/é"), urllib.parse.parse_qs("a=1&a=2"))
