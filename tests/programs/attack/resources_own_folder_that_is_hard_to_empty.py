# name: resources: own folder that is hard to empty
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

home = os.getcwd()
os.remove("main.py")
os.makedirs("main.py/main.py/x")
for name in (b"\xff" * 200, "-rf", "new\nline", "moved-1", "moved-2"):
    os.mkdir(name)
    open(os.path.join(os.fsencode(name), b"main.py"), "w").close()
for number in range(100):
    os.mkdir("deeper" * 30)
    os.chdir("deeper" * 30)
for mask in (0o777, 0o477, 0o377):
    os.umask(mask)
    os.mkdir(f"closed-{mask}")
    os.mkdir(f"{home}/closed-{mask}")
os.close(os.open("locked", os.O_WRONLY | os.O_CREAT, 0))

finish()

