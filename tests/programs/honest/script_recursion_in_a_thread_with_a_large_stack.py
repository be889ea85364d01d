# name: script: recursion in a thread with a large stack
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(1 << 27)
def f(n): return 0 if n == 0 else f(n - 1) + 1
def main(): print(f(30000))
t = threading.Thread(target=main); t.start(); t.join()
