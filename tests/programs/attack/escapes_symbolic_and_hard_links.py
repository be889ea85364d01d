# name: escapes: symbolic and hard links
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

for folder in ("/tmp", "/dev/shm", "/var/tmp", "/dev", "/run", "/", os.getcwd()):
    name = os.path.join(folder, "link-" + world["nonce"])
    for source in (world["file"], "/proc/1/root" + world["file"], sys.executable):
        attempt(f"hard-{folder}", os.link, source, name)
        try:
            os.symlink(source, name)
        except OSError:
            continue
        mode = "r+b" if source == sys.executable else "rb"
        attempt(f"through-{folder}", open, name, mode)
        os.remove(name)

finish()

