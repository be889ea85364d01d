# name: expression: 22 math
# input: ""
# ---
import math
print(math.dist((0, 0), (1, 1)), math.prod([1.5, 2]), math.fsum([.1] * 10), sum([.1] * 10))
