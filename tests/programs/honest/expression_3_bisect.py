# name: expression: 3 bisect
# input: ""
# ---
import bisect
print(bisect.bisect_left([(1, "a"), (3, "b")], 2, key=lambda p: p[0]))
