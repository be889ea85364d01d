# name: expression: 53 calendar
# input: ""
# ---
import calendar
print(calendar.isleap(1900), calendar.monthrange(2023, 2), calendar.month(2024, 2), calendar.day_name[0])
