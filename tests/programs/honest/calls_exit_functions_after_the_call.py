# name: calls: exit functions after the call
# function: f
# input: [2]
# output: 2
# ---
import atexit
atexit.register(print, 'bye')
def f(a): return a
