# name: expression: 40 fractions
# input: ""
# ---
import fractions
print(fractions.Fraction(3.14159).limit_denominator(100), round(fractions.Fraction(5, 2)), [fractions.Fraction(2)])
