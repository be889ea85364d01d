# name: calls: what is printed is no result
# function: f
# input: [2]
# output: 2
# ---
print('hello')
def f(a):
    print(a)
    return a
