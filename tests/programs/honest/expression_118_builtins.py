# name: expression: 118 builtins
# input: ""
# ---
import builtins
print([*zip("ab", [1, 2], strict=True)], [*map(max, [1, 5], [2, 3])], [*enumerate("ab", 1)], [*reversed("ab")], all([]))
