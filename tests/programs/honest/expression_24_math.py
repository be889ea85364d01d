# name: expression: 24 math
# input: ""
# ---
import math
print(math.frexp(10.0), math.ldexp(.5, 4), math.modf(3.25), math.nextafter(1, 2), math.ulp(1))
