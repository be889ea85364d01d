# name: calls: Decimal
# function: f
# input: [2]
# output: [0.5, 2]
# ---
from decimal import Decimal
def f(a): return [Decimal(a) / 4, Decimal(a)]
