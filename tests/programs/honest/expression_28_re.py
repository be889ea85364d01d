# name: expression: 28 re
# input: ""
# ---
import re
print(re.findall(r"\d+", "a1b22"), re.sub(r"(\w)(\w)", r"\2\1", "abcd"), re.split(r"[,;]", "a,b;c"))
