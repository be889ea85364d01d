# name: expression: 19 functools
# input: ""
# ---
import functools
print(sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)))
