# name: expression: 15 collections
# input: ""
# ---
import collections
print((d := collections.defaultdict(list), d[1].append(2), d))
