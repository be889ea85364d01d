# name: expression: 129 builtins
# input: ""
# ---
import builtins
print(isinstance(True, int), True + True, None is None, type(1).__name__, callable(print), bool([]), 1 < 2 < 3 > 2, not ())
