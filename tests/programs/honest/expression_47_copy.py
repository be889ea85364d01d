# name: expression: 47 copy
# input: ""
# ---
import copy
print((a := [[1]], b := copy.copy(a), c := copy.deepcopy(a), a[0].append(2), b, c))
