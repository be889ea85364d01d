# name: resources: disk filler on every writable path
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

written = 0
block = b"x" * (1 << 20)
for folder, folders, files in os.walk("/"):
    if folder in ("/proc", "/sys"):
        folders.clear()
        continue
    name = os.path.join(folder, "filler-" + world["nonce"])
    try:
        with open(name, "wb", buffering=0) as file:
            for _ in range(64):
                written += file.write(block)
    except OSError:
        pass
if written > 32 << 20:
    leaks.append(f"{written >> 20}-MB")

finish()

