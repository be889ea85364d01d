# name: tricks: right output, an exit code that lies
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


class Liar(int):
    """3, whatever is made of it."""

    __abs__ = __and__ = __rand__ = __int__ = __index__ = lambda *_: 0
    __lt__ = __le__ = __gt__ = __ge__ = lambda *_: True


sys.exit(Liar(3))
