# name: resources: 1 GB on stdout
# tries: to exhaust the machine: its processes, memory, disk, time and patience
# verdicts: OUTPUT_LIMIT RUNTIME_ERROR
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
for _ in range(1024): os.write(1, b'x' * (1 << 20))
