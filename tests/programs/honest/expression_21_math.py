# name: expression: 21 math
# input: ""
# ---
import math
print(math.pi, math.hypot(3, 4), math.log2(1 << 60), math.log(10), math.exp(1), math.inf, math.nan)
