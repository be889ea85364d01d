# name: secrets: read memory of other processes
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

class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
near, far = Part(ctypes.addressof(BUFFER), 16), Part(0x400000, 16)
for pid in (1, 2, os.getppid(), world["pid"]):
    if pid > 1 or os.getpid() != 1:
        for name, numbers in (("readv", (310, 270)), ("writev", (311, 271))):
            syscall(f"{name}-{pid}", numbers, pid, ctypes.byref(near), 1, ctypes.byref(far), 1, 0)

finish()

