# name: expression: 52 datetime
# input: ""
# ---
import datetime
print(datetime.datetime.strptime("13:05", "%H:%M").time(), datetime.timedelta(seconds=-1), datetime.timezone.utc)
