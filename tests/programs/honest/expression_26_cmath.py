# name: expression: 26 cmath
# input: ""
# ---
import cmath
print(cmath.sqrt(-1), cmath.polar(1j), (1 + 2j) ** 2, abs(3 + 4j), cmath.exp(1j * cmath.pi))
