# name: escapes: kernel modules, reboot, clock
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

syscall("init_module", (175, 105), BUFFER, 0, b"")
syscall("finit_module", (313, 273), 0, b"", 0)
syscall("delete_module", (176, 106), b"owned", 0)
syscall("kexec_load", (246, 104), 0, 0, 0, 0)
syscall("reboot", (169, 142), 0xFEE1DEAD, 672274793, 0, 0)
syscall("swapon", (167, 224), b"/owned", 0)
syscall("acct", (163, 89), b"/owned")
import time
now = time.clock_gettime_ns(time.CLOCK_REALTIME)
syscall("clock_settime", (227, 112), 0, (ctypes.c_long * 2)(*divmod(now, 10**9)))
syscall("settimeofday", (164, 170), (ctypes.c_long * 2)(now // 10**9, 0), 0)
syscall("iopl", (172, None), 3)

finish()

