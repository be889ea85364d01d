# name: script: a generator as a stack
# input: "5\r\n7 8\r\nend\r\n"
# ---
from types import GeneratorType
def boot(f, stack=[]):
    def wrap(*args):
        if stack: return f(*args)
        to = f(*args)
        while True:
            if type(to) is GeneratorType: stack.append(to); to = next(to)
            else:
                stack.pop()
                if not stack: break
                to = stack[-1].send(to)
        return to
    return wrap
@boot
def f(n): yield 0 if n == 0 else (yield f(n - 1)) + 1
print(f(20000))
