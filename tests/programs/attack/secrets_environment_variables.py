# name: secrets: environment variables
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

for name, value in os.environ.items():
    if world["nonce"] in name + value:
        leaks.append(name)
for pid in ("self", "1", str(os.getppid())):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if world["nonce"].encode() in file.read():
                leaks.append(f"environ-{pid}")
    except OSError:
        pass

finish()

