# name: calls: a function that prints
# function: f
# input: [1, 2]
# output: 3
# ---
def f(a, b):
    print("noise")
    return a + b
