# name: expression: 78 os
# input: ""
# ---
import os
print((os.sched_setaffinity(0, s := os.sched_getaffinity(0)), os.sched_getaffinity(0) == s, os.umask(18), os.get_blocking(0)))
