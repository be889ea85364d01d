# name: calls: stdin tried in vain
# function: f
# input: [2]
# output: 3
# ---
try:
    n = int(input())
except EOFError:
    n = 1
def f(a): return a + n
