# name: expression: 45 array
# input: ""
# ---
import array
print((a := array.array("q", range(5)), a.extend([9]), a.reverse(), a.tolist(), a[1:3]))
