# name: expression: 10 itertools
# input: ""
# ---
import itertools
print([*itertools.compress("abc", [1, 0, 1])], [*itertools.dropwhile(lambda x: x < 2, [1, 2, 1])])
