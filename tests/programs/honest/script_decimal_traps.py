# name: script: decimal traps
# input: "5\r\n7 8\r\nend\r\n"
# ---
from decimal import *
try: Decimal(1) / 0
except DivisionByZero as e: print(e)
with localcontext() as c: c.prec = 5; print(Decimal(22) / 7)
print(Decimal('1.10').normalize(), max(Decimal('NaN'), Decimal(1)), Decimal(5).sqrt(), getcontext().prec)
