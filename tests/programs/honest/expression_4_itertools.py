# name: expression: 4 itertools
# input: ""
# ---
import itertools
print([*itertools.accumulate([1, 2, 3], max)], [*itertools.accumulate([1, 2], initial=7)])
