# name: expression: 117 builtins
# input: ""
# ---
import builtins
print(sorted(["b", "A", "a"], key=str.lower, reverse=True), max([], default=3), min("b", "a"), sum([[1], [2]], []))
