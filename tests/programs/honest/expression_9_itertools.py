# name: expression: 9 itertools
# input: ""
# ---
import itertools
print([*itertools.zip_longest([1], [2, 3], fillvalue=0)], [*itertools.starmap(pow, [(2, 3)])])
