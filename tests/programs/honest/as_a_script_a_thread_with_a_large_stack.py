# name: as a script: a thread with a large stack
# input: ""
# ---
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(2**28)
def f(n): return n and 1 + f(n - 1)
t = threading.Thread(target=lambda: print(f(50000)))
t.start()
t.join()
