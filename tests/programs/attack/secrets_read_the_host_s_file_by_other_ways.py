# name: secrets: read the host's file by other ways
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

roots = ["", "/proc/self/root", "/proc/1/root", "/proc/self/cwd", "/proc/1/cwd", "/..",
         "/../../..", "/proc/thread-self/root", "/oldroot", "/old_root", "/.old", "/mnt", "/host",
         "/rootfs", "/proc/self/task/1/root", "/tmp", "/dev/fd/.."]
for root in roots:
    attempt(root or "/", open, root + world["file"])
for descriptor in range(256):
    for path in (world["file"].lstrip("/"), "../" * 12 + world["file"].lstrip("/")):
        attempt(f"openat-{descriptor}", lambda: os.open(path, os.O_RDONLY, dir_fd=descriptor))

finish()

