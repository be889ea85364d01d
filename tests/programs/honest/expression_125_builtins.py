# name: expression: 125 builtins
# input: ""
# ---
import builtins
print([*{"banana", "apple", "cherry"}], [*{3, 1, 2, 100, 50}], repr({"b", "a"}), str({1.5, "x", None}))
