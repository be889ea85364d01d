# name: secrets: list the host's folders
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

folder = os.path.dirname(world["file"])
attempt("list", os.listdir, folder)
attempt("stat", os.stat, folder)
try:
    # The interpreter may itself lie in the home folder: then its path is there, and nothing else.
    if len(world["home_names"]) > 1 and sorted(os.listdir(world["home"])) == world["home_names"]:
        leaks.append("home")
except OSError:
    pass
try:
    if os.path.basename(folder) in os.listdir(os.path.dirname(folder)):
        leaks.append("parent")
except OSError:
    pass

finish()

