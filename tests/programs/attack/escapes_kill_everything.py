# name: escapes: kill everything
# tries: to leave its confinement: files, rights, namespaces, dangerous system calls
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

for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGKILL):
    try:
        os.kill(-1, number)
    except OSError:
        pass
print("HELD")

