# name: resources: thread bomb
# tries: to exhaust the machine: its processes, memory, disk, time and patience
# verdicts: ACCEPTED
# time_limit: 3.0 s of CPU
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

import threading, time
for count in range(5000):
    try:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except (RuntimeError, MemoryError):
        break
else:
    leaks.append("5000-threads")

finish()

