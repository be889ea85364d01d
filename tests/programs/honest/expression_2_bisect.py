# name: expression: 2 bisect
# input: ""
# ---
import bisect
print(bisect.bisect_left([1, 2, 2, 3], 2), bisect.bisect([1, 2, 2, 3], 2, 0, 3))
