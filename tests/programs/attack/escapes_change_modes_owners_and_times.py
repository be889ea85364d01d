# name: escapes: change modes, owners and times
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

for path in ("/", "/etc", os.__file__, sys.executable, world["file"]):
    attempt("chmod-" + path, os.chmod, path, 0o777)
    attempt("chown-" + path, os.chown, path, os.getuid(), os.getgid())
    attempt("utime-" + path, os.utime, path, (0, 0))
    attempt("xattr-" + path, lambda: os.setxattr(path, "user.owned", b"1"))

finish()

