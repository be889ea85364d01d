# name: as a script: deep recursion
# input: ""
# ---
import sys
sys.setrecursionlimit(10**6)
def f(n): return n and 1 + f(n - 1)
print(f(50000))
