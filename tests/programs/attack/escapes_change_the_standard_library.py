# name: escapes: change the standard library
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

for path in (os.__file__, json.__file__, sys.executable):
    attempt(path, lambda: open(path, "r+b"))
    attempt("remove-" + path, os.remove, path)
    attempt("rename-" + path, os.rename, path, path + ".old")
    attempt("truncate-" + path, os.truncate, path, 0)
attempt("exe", lambda: open("/proc/self/exe", "r+b"))
attempt("exe-of-1", lambda: open("/proc/1/exe", "r+b"))

finish()

