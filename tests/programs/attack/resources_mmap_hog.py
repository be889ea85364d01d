# name: resources: mmap hog
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

import mmap
held = []
while True:
    held.append(mmap.mmap(-1, 16 << 20))
    held[-1].write(b"x" * (16 << 20))

