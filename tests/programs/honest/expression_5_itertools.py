# name: expression: 5 itertools
# input: ""
# ---
import itertools
print([*itertools.combinations("abc", 2)], [*itertools.permutations([1, 2, 3], 2)][-1])
