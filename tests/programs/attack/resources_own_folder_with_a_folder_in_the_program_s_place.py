# name: resources: own folder with a folder in the program's place
# tries: to exhaust the machine: its processes, memory, disk, time and patience
# verdicts: ACCEPTED
# tests: 3
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
os.remove("main.py")
os.makedirs("main.py/main.py")
finish()

