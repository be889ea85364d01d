# name: expression: 35 decimal
# input: ""
# ---
import decimal
print(decimal.Decimal("0.1") + decimal.Decimal("0.2"), decimal.Decimal(2).sqrt(), decimal.Decimal("1E+3"))
