# name: library: recursion right below a limit of its own
# input: ""
# output: "1498 1500\ntoo deep\n2147483647\nValueError\nValueError\nOverflowError\nTypeError\nRecursionError\n"
# ---
import sys
sys.setrecursionlimit(1500)
def f(n): return n and 1 + f(n - 1)
print(f(1498), sys.getrecursionlimit())
try: f(1499)
except RecursionError: print('too deep')
sys.setrecursionlimit(2**31 - 1)
print(sys.getrecursionlimit())
for wrong in 0, -1, 2**31, 1.5, 1:
    try: sys.setrecursionlimit(wrong)
    except Exception as error: print(type(error).__name__)
