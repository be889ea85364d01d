# name: expression: 37 decimal
# input: ""
# ---
import decimal
print(decimal.Decimal("2.675").quantize(decimal.Decimal("0.01"), decimal.ROUND_HALF_UP), decimal.Decimal("NaN"))
