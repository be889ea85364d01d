# name: expression: 17 collections
# input: ""
# ---
import collections
print(collections.ChainMap({1: 2}, {1: 3, 4: 5})[4], collections.namedtuple("P", "x y")(1, y=2))
