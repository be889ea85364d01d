# name: calls: Fraction
# function: f
# input: [2]
# output: [0.5, 2]
# ---
from fractions import Fraction
def f(a): return [Fraction(a, 4), Fraction(a)]
