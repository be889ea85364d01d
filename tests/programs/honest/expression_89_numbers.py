# name: expression: 89 numbers
# input: ""
# ---
import numbers
print(isinstance(1, numbers.Integral), isinstance(1.5, numbers.Rational))
