# name: resources: memory hog in threads
# tries: to exhaust the machine: its processes, memory, disk, time and patience
# verdicts: MEMORY_LIMIT RUNTIME_ERROR
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

import threading
held = []
def grow():
    while True:
        held.append(bytearray(1 << 20))
threads = [threading.Thread(target=grow) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(1)

