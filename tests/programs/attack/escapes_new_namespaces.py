# name: escapes: new namespaces
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

for name, flag in (("user", 0x10000000), ("mount", 0x20000), ("pid", 0x20000000),
                   ("net", 0x40000000), ("ipc", 0x8000000), ("time", 0x80)):
    syscall(f"unshare-{name}", (272, 97), flag)
    child = syscall(f"clone-{name}", (56, 220), flag | 17, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
for name in ("user", "mnt", "pid", "net"):
    for pid in ("1", "self"):
        try:
            descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        except OSError:
            continue
        syscall(f"setns-{name}-of-{pid}", (308, 268), descriptor, 0)

finish()

