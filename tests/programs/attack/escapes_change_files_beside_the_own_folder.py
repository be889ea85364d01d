# name: escapes: change files beside the own folder
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

open  # a program that has a folder
own = os.path.join(os.getcwd(), "own-" + world["nonce"])
os.mkdir(own)
library = os.path.dirname(os.__file__)
folders = ["/", "/dev", "/etc", "/stdio", "/proc", "/tmp", "/var/tmp", "/dev/shm", library,
           os.path.dirname(world["file"]), os.path.dirname(os.getcwd())]
for folder in folders:
    name = os.path.join(folder, "left-" + world["nonce"])
    attempt(f"mkdir-{folder}", os.mkdir, name)
    attempt(f"move-{folder}", os.rename, own, name)
    attempt(f"make-{folder}", os.open, name, os.O_WRONLY | os.O_CREAT)
    attempt(f"remove-{folder}", os.rmdir, folder)
files = [os.__file__, world["file"], "/dev/stdin", "/dev/null", "/stdio/stdout", sys.executable]
for name in files:
    attempt(f"take-{name}", os.rename, name, own + "/taken")
    attempt(f"unlink-{name}", os.unlink, name)
    attempt(f"replace-{name}", os.replace, own, name)
    attempt(f"link-{name}", os.link, name, own + "/link")
    attempt(f"symlink-{name}", os.symlink, name, own + "/symlink")
for kind in (0o10600, 0o20600, 0o60600):
    attempt(f"node-{kind}", os.mknod, own + "/node", kind, os.makedev(1, 3))
attempt("mode", os.chmod, own, 0o777)

finish()

