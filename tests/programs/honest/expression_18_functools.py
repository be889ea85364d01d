# name: expression: 18 functools
# input: ""
# ---
import functools
print(functools.reduce(lambda a, b: a * b, range(1, 30)), functools.partial(int, base=2)("101"))
