# name: expression: 123 builtins
# input: ""
# ---
import builtins
print([x for x in range(20) if not x % 3], {x: x * x for x in range(3)}, (lambda *a, **k: (a, k))(1, b=2), [[0] * 2] * 2)
