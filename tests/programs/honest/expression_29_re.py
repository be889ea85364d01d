# name: expression: 29 re
# input: ""
# ---
import re
print(re.fullmatch(r"(?P<x>a+)b*", "aab").groupdict(), re.match(r"\s*", "  x").span())
