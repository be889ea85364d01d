# name: expression: 122 builtins
# input: ""
# ---
import builtins
print({1, 2} | {3} ^ {1}, {*"hello"} == set("ohell"), frozenset([1]), {1: 2} | {3: 4}, {}.get(1), dict(zip("ab", [1, 2])))
