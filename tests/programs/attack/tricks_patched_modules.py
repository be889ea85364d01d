# name: tricks: patched modules
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
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

import io, struct
if hasattr(sys, "owned"):
    leaks.append("modules-outlived-the-test")
sys.owned = True
os.memfd_create = os.fork = os.wait4 = os.kill = lambda *a, **k: 0
json.dumps = struct.pack = lambda *a, **k: b""
sys.modules["io"] = None
sys.setrecursionlimit(60)

finish()

