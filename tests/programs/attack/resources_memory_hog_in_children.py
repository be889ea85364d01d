# name: resources: memory hog in children
# tries: to exhaust the machine: its processes, memory, disk, time and patience
# verdicts: ACCEPTED MEMORY_LIMIT RUNTIME_ERROR
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

import time
for _ in range(6):
    try:
        if os.fork() == 0:
            held = bytearray(b"x") * (48 << 20)
            time.sleep(0.3)
            os._exit(0)
    except OSError:
        break
time.sleep(0.4)
print("HELD")

