# name: expression: 93 string
# input: ""
# ---
import string
print(string.Formatter().format("{0:>5}|{a!r:^7}", 1, a="x"), string.capwords("ab cd"))
