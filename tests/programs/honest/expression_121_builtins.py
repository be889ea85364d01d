# name: expression: 121 builtins
# input: ""
# ---
import builtins
print("abc".translate({97: "x", 98: None}), "aab".count("a"), "x".join("abc"), "abc"[::-1], "ab" * 3, "abc".find("z"))
