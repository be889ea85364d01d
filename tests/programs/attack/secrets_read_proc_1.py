# name: secrets: read /proc/1
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

for name in ("environ", "mem", "maps", "stack", "auxv", "syscall", "fd/0", "fd/1", "exe"):
    attempt(f"1-{name}", lambda: open(f"/proc/1/{name}", "rb").read(1))
for name in ("root", "cwd", "fd", "map_files", "fdinfo"):
    attempt(f"1-{name}", os.listdir, f"/proc/1/{name}")

finish()

