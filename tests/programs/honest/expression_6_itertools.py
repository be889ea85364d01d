# name: expression: 6 itertools
# input: ""
# ---
import itertools
print([*itertools.product([0, 1], repeat=3)][5], [*itertools.pairwise([1, 4, 9])])
