# name: script: dates and times
# input: "5\r\n7 8\r\nend\r\n"
# ---
import datetime, time
print(time.time() > 1e9, time.localtime().tm_year > 2020, time.tzname[0], datetime.datetime.now().year > 2020)
time.sleep(.001); print(time.process_time() >= 0, time.thread_time() >= 0)
