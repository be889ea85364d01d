# name: escapes: daemon without a parent to die with
# tries: to leave its confinement: files, rights, namespaces, dangerous system calls
# verdicts: ACCEPTED WRONG_ANSWER
# note: WRONG_ANSWER if several processes answered
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

import ctypes, time
libc = ctypes.CDLL(None)
try:
    for _ in range(3):
        if os.fork():
            break
        libc.prctl(1, 0, 0, 0, 0)
        libc.prctl(36, 1, 0, 0, 0)
        libc.prctl(15, world["nonce"][:15].encode(), 0, 0, 0)
        for number in range(1, 32):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
    else:
        time.sleep(120)
except OSError:
    pass
print("HELD")
os._exit(0) if os.getpid() == 1 else None

