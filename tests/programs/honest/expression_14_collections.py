# name: expression: 14 collections
# input: ""
# ---
import collections
print((d := collections.deque([1, 2, 3], maxlen=3), d.rotate(1), d.append(4), d))
