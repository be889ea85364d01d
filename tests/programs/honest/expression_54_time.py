# name: expression: 54 time
# input: ""
# ---
import time
print(time.strftime("%Y", time.gmtime(0)), time.perf_counter() >= 0, time.monotonic_ns() > 0, time.mktime(time.gmtime(9)))
