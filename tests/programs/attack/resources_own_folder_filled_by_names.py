# name: resources: own folder filled by names
# tries: to exhaust the machine: its processes, memory, disk, time and patience
# verdicts: ACCEPTED OUTPUT_LIMIT
# time_limit: 10.0 s of CPU
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

count = 0
try:
    for count in range(1 << 17):
        os.close(os.open(f"{count}-" + "x" * 200, os.O_WRONLY | os.O_CREAT))
except OSError:
    pass
print("HELD" if count < 1000 else f"BROKEN: {count} files")

