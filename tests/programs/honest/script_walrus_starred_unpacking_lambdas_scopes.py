# name: script: walrus, starred, unpacking, lambdas, scopes
# input: "5\r\n7 8\r\nend\r\n"
# ---
a, *b, c = range(5); (d, e), f = [1, 2], 3
if (n := len(b)) > 2: print(n, {**{1: 2}, 3: 4}, [*b, *'xy'])
x = 1
def outer():
    x = 2
    def inner():
        nonlocal x
        x += 1
        return x
    return inner() + globals()['x']
print(outer(), [f() for f in [lambda i=i: i for i in range(3)]], (lambda: (yield))().__name__)
