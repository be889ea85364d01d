# name: secrets: read /etc/passwd
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

import hashlib
for path, digest in world["host_files"].items():
    try:
        with open(path, "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() == digest:
                leaks.append(path)
    except OSError:
        pass

finish()

