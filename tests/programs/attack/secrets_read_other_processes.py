# name: secrets: read other processes
# tries: to read what it must not: the host's files, other processes, other tests
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
    others = [pid for pid in os.listdir("/proc") if pid.isdecimal()]
except OSError:
    others = [str(pid) for pid in range(1, 2000)]
me = {str(os.getpid()), os.path.basename(os.path.realpath("/proc/self"))}
for pid in set(others) - me:
    for name in ("environ", "mem", "maps"):
        attempt(f"{pid}-{name}", lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
    attempt(f"{pid}-fd", os.listdir, f"/proc/{pid}/fd")

finish()

