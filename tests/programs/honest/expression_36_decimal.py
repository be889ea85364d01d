# name: expression: 36 decimal
# input: ""
# ---
import decimal
print((decimal.getcontext().__setattr__("prec", 50), decimal.Decimal(1) / 3))
