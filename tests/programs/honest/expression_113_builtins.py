# name: expression: 113 builtins
# input: ""
# ---
import builtins
print(round(2.5), round(-1.5), round(2.675, 2), round(12345, -2), divmod(-7, 3), -7 // 2, -7 % 3, 7 % -3)
