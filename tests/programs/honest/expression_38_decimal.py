# name: expression: 38 decimal
# input: ""
# ---
import decimal
print(f"{decimal.Decimal('1234.5'):,.2f}", decimal.Decimal(0.1), decimal.Decimal(10) ** 30, -decimal.Decimal(0))
