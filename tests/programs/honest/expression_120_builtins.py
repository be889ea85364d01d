# name: expression: 120 builtins
# input: ""
# ---
import builtins
print("ß".upper(), "İ".lower(), "ǅ".title(), "é" < "f", "ab".center(7, "*"), "7".zfill(3), "a\tb".expandtabs(4))
