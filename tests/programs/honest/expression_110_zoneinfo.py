# name: expression: 110 zoneinfo
# input: ""
# ---
import zoneinfo
print(zoneinfo.ZoneInfo.__name__)
