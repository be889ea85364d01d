# name: expression: 11 itertools
# input: ""
# ---
import itertools
print([*itertools.combinations_with_replacement([1, 2], 2)], [*itertools.filterfalse(bool, [0, 1])])
