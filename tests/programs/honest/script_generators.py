# name: script: generators
# input: "5\r\n7 8\r\nend\r\n"
# ---
def g():
    x = yield 1
    print('got', x)
    try: yield 2
    except ValueError: yield 3
    return 4
i = g(); print(next(i), i.send('a'), i.throw(ValueError))
try: next(i)
except StopIteration as e: print(e.value)
def h(): r = yield from (x for x in 'ab'); print(r)
print([*h()])
