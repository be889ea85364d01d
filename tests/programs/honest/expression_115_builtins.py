# name: expression: 115 builtins
# input: ""
# ---
import builtins
print(float("1e308") * 10, float("-inf"), 0.1 + 0.2, 1e22, 1e16, 123456789012345678.0, -0.0, 5e-324, 1 / 3)
