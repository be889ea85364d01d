# name: library: deep recursion
# input: ""
# output: "100000\n"
# ---
import sys
sys.setrecursionlimit(10**6)
def f(n): return n and 1 + f(n - 1)
print(f(100000))
