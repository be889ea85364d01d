# name: script: priority and affinity
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os
print(os.nice(3) - os.nice(0), os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}), len(os.sched_getaffinity(0)))
