# name: tricks: right output, wrong exit code
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
# verdicts: RUNTIME_ERROR
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
print('HELD')
sys.exit(1)
