# name: escapes: become another user
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

if os.getuid() != 0:
    attempt("setuid", os.setuid, 0)
    attempt("setresuid", os.setresuid, 0, 0, 0)
    attempt("setgid", os.setgid, 0)
attempt("setgroups", os.setgroups, [0, 27])
header = (ctypes.c_uint * 2)(0x20080522, 0)
syscall("capset", (126, 91), header, (ctypes.c_uint * 6)(*[0xFFFFFFFF] * 6))
try:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(("CapEff", "CapPrm", "CapInh", "CapAmb")) and int(line[7:], 16):
                leaks.append(line.split(":")[0])
            if line.startswith("NoNewPrivs") and line.split()[1] != "1":
                leaks.append("NoNewPrivs")
except OSError:
    pass

finish()

