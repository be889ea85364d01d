# name: expression: 25 math
# input: ""
# ---
import math
print(math.gamma(5), math.erf(1), math.atan2(1, -1), math.degrees(1), math.cbrt(27), math.remainder(7, 4))
