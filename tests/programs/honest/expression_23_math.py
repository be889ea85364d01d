# name: expression: 23 math
# input: ""
# ---
import math
print(math.floor(-2.5), math.ceil(-2.5), math.trunc(-2.5), math.copysign(1, -0.0), math.fmod(-7, 3))
