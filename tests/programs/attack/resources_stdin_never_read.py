# name: resources: stdin never read
# tries: to exhaust the machine: its processes, memory, disk, time and patience
# verdicts: ACCEPTED
# padding: 25165824 bytes of input after the first line
# time_limit: 3.0 s of CPU
# ---
print('HELD')
