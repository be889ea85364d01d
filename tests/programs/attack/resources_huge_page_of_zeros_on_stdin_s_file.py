# name: resources: huge page of zeros on stdin's file
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

try:
    os.lseek(0, 1 << 32, os.SEEK_SET)
    os.write(0, b"x")
    if os.fstat(0).st_size > 64 << 20:
        leaks.append("stdin-grown")
except OSError:
    pass

finish()

