# name: escapes: mount
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

import ctypes
libc = ctypes.CDLL(None, use_errno=True)
COLUMN = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
BUFFER = ctypes.create_string_buffer(4096)

def syscall(name, numbers, *arguments):
    """A leak if the kernel took the call, or refused it for its arguments only."""
    if numbers[COLUMN] is None:
        return None
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(numbers[COLUMN]), *words)
    if result != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS, errno.EACCES):
        leaks.append(name)
    return result

syscall("mount", (165, 40), b"none", b"/", b"tmpfs", 0, 0)
syscall("remount", (165, 40), b"none", b"/", 0, 32 | 4096, 0)
syscall("umount", (166, 39), b"/proc", 2)
syscall("open_tree", (428, 428), -100, b"/", 1)
syscall("fsopen", (430, 430), b"tmpfs", 0)
syscall("move_mount", (429, 429), -100, b"/", -100, b"/", 0)
syscall("mount_setattr", (442, 442), -100, b"/", 0, 0, 0)

finish()

