# name: resources: fork bomb that answers first
# tries: to exhaust the machine: its processes, memory, disk, time and patience
# verdicts: ACCEPTED WRONG_ANSWER
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

print("HELD", flush=True)
for _ in range(12):
    try:
        os.fork()
    except OSError:
        break
if os.getpid() != 1:
    os._exit(0)

