# name: escapes: signals to others by the calls that reach oneself
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

me = os.getpid()
for pid in {0, -1, -me, 1, 2, 3, os.getppid(), world["pid"], me + 1, me - 1} - {me}:
    for number in (0, 9, 10, 18):
        syscall(f"kill-{pid}-{number}", (62, 129), pid, number)
        syscall(f"tgkill-{pid}-{number}", (234, 131), pid, pid, number)
for pid in (me, world["pid"]):
    syscall(f"tkill-{pid}", (200, 130), pid, 0)
    syscall(f"queue-{pid}", (129, 138), pid, 0, BUFFER)
    syscall(f"thread-queue-{pid}", (297, 240), pid, pid, 0, BUFFER)
    syscall(f"pidfd-{pid}", (434, 434), pid, 0)

finish()

