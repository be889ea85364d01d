# name: resources: limits raised
# tries: to exhaust the machine: its processes, memory, disk, time and patience
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

import resource
def raise_limit(number):
    try:
        resource.setrlimit(number, (1 << 40, 1 << 40))
    except ValueError as refused:
        raise OSError(errno.EPERM, name) from refused
for name in ("CPU", "AS", "FSIZE", "NOFILE", "NPROC", "MEMLOCK", "CORE"):
    number = getattr(resource, f"RLIMIT_{name}")
    if resource.getrlimit(number)[1] != resource.RLIM_INFINITY:
        attempt(name, raise_limit, number)
attempt("nice", os.nice, -10)
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    leaks.append("real-time")
except OSError:
    pass
attempt("oom", lambda: open("/proc/self/oom_score_adj", "w").write("-1000"))
if libc.mlockall(3) == 0:
    leaks.append("mlockall")

finish()

