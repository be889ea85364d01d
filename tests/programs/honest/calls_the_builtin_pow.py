# name: calls: the builtin pow
# function: f
# input: [2, 10, 7]
# output: 2
# ---
def f(a, b, m): return pow(a, b, m)
