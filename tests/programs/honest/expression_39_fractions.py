# name: expression: 39 fractions
# input: ""
# ---
import fractions
print(fractions.Fraction(1, 3) + fractions.Fraction("1/6"), fractions.Fraction(.75), fractions.Fraction(7, 2) // 1)
