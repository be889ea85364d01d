# name: ending: a generator alive at the end
# input: ""
# output: "1\nend\n"
# ---
def f():
    try:
        yield 1
    finally:
        print('end')
g = f()
print(next(g))
