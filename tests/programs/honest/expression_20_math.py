# name: expression: 20 math
# input: ""
# ---
import math
print(math.gcd(12, 18, 27), math.lcm(4, 6), math.isqrt(10**40), math.comb(50, 25), math.perm(5, 2))
