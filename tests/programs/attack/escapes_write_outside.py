# name: escapes: write outside
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

folders = ["/", "/etc", "/usr", "/usr/bin", "/root", "/home", "/var", "/sys", "/proc", "/bin",
           sys.prefix, os.path.dirname(os.__file__), os.path.dirname(world["file"])]
for folder in folders:
    name = os.path.join(folder, "owned-" + world["nonce"])
    attempt(folder, lambda: open(name, "w"))
    attempt(f"mkdir-{folder}", os.mkdir, name)
attempt("canary", lambda: open(world["file"], "a"))
attempt("remove", os.remove, world["file"])

finish()

