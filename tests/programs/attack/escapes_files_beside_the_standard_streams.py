# name: escapes: files beside the standard streams
# tries: to leave its confinement: files, rights, namespaces, dangerous system calls
# verdicts: ACCEPTED
# tests: 2
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

for folder in ("/stdio", "/dev", "/dev/fd", "/"):
    for number in range(3):
        name = f"{folder}/left-{number}"
        attempt(name, os.open, name, os.O_WRONLY | os.O_CREAT, 0o666)
for name in ("/stdio/stdin", "/dev/stdin", "/dev/fd/1"):
    attempt(f"remove-{name}", os.remove, name)
    attempt(f"rename-{name}", os.rename, name, name + "-left")
    attempt(f"mode-{name}", os.chmod, name, 0o600)
    attempt(f"times-{name}", os.utime, name, (0, 0))
    attempt(f"attribute-{name}", lambda: os.setxattr(name, "user.left", b"1"))

finish()

