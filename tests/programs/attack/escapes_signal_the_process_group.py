# name: escapes: signal the process group
# tries: to leave its confinement: files, rights, namespaces, dangerous system calls
# verdicts: ACCEPTED TIME_LIMIT RUNTIME_ERROR
# note: RUNTIME_ERROR if it killed itself, TIME_LIMIT if it stopped itself
# time_limit: 0.1 s of CPU
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

for number in (signal.SIGCONT, signal.SIGUSR1, signal.SIGSTOP, signal.SIGKILL):
    for action in (os.kill, os.killpg):
        try:
            action(0, number)
        except OSError:
            pass
print("HELD")

