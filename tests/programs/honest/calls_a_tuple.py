# name: calls: a tuple
# function: f
# input: [[1, 2]]
# output: [1, [1, 2]]
# ---
def f(a): return a[0], tuple(a)
