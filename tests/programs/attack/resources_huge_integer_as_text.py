# name: resources: huge integer as text
# tries: to exhaust the machine: its processes, memory, disk, time and patience
# verdicts: TIME_LIMIT MEMORY_LIMIT
# time_limit: 0.1 s of CPU
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
print(str((1 << (1 << 25)) - 1))
