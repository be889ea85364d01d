# name: expression: 51 datetime
# input: ""
# ---
import datetime
print(datetime.datetime(2020, 1, 1, 12) - datetime.datetime(2019, 1, 1), datetime.date.fromisoformat("2021-05-06"))
