# name: expression: 124 builtins
# input: ""
# ---
import builtins
print(hash("a") == hash("a"), hash(1.0) == hash(1), hash((1, 2)), hash(2**61 - 1), id(1) == id(1), hash(-1), hash("contest"))
