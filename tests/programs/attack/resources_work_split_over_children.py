# name: resources: work split over children
# tries: to exhaust the machine: its processes, memory, disk, time and patience
# verdicts: ACCEPTED TIME_LIMIT
# note: ACCEPTED if no child came to be; the time limit lies between what one process uses and what it uses with its children
# time_limit: 0.5 s of CPU
# ---

import errno, json, os, signal, sys
world = json.loads(sys.stdin.readline())
leaks = []

def attempt(name, action, *arguments):
    """Note it as a leak if the action succeeds; return what it returned."""
    try:
        result = action(*arguments)
    except (OSError, ImportError):
        return None
    leaks.append(name)
    return result

def finish():
    print("BROKEN:" + ",".join(leaks) if leaks else "HELD")

import time
for _ in range(4):
    try:
        child = os.fork()
    except OSError:
        break
    if child == 0:
        while time.process_time() < 0.4:
            pass
        os._exit(0)
while time.process_time() < 0.3:
    pass
while True:
    try:
        os.wait()
    except OSError:
        break
times = os.times()
print("HELD" if times.children_user < 0.1 else "SPLIT")

