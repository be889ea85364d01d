# name: expression: 12 itertools
# input: ""
# ---
import itertools
print([next(c := itertools.count(5, 2)), next(c)], [[*t] for t in itertools.tee([1, 2])])
