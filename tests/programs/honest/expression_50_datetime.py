# name: expression: 50 datetime
# input: ""
# ---
import datetime
print(datetime.date(2024, 2, 29) + datetime.timedelta(366), datetime.date(2000, 1, 1).strftime("%a %d %b %Y %j"))
