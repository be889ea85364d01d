# name: library: a thread with a stack of 1 GB
# input: ""
# output: "50000\n"
# ---
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(10**9)
def f(n): return n and 1 + f(n - 1)
t = threading.Thread(target=lambda: print(f(50000)))
t.start()
t.join()
