# name: expression: 7 itertools
# input: ""
# ---
import itertools
print([(k, len([*g])) for k, g in itertools.groupby("aabccc")])
