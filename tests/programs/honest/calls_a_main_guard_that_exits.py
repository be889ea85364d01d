# name: calls: a main guard that exits
# function: f
# input: [2]
# output: 3
# ---
import sys
def f(a): return a + 1
if __name__ == '__main__': sys.exit(f(0))
