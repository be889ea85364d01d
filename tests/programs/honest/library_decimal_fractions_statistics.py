# name: library: decimal, fractions, statistics
# input: ""
# output: "0.142857142857142857142857142857 3/2 1.5\n"
# ---
from decimal import *
from fractions import Fraction
import statistics
getcontext().prec = 30
print(Decimal(1) / 7, Fraction(6, 4), statistics.mean([1, 2]))
