# name: script: deep recursion of the main thread
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
sys.setrecursionlimit(200000)
def f(n): return n and f(n - 1) + 1
print(f(15000))
