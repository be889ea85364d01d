# name: secrets: the worker's command line and the host's load
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

for pid in {1, 2, os.getpid(), os.getppid(), "self"}:
    for name in ("cmdline", "status", "stat", "cgroup", "mountinfo", "schedstat"):
        attempt(f"{pid}-{name}", lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
for path in ("/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory", "/proc/loadavg",
             "/proc/stat", "/proc/meminfo", "/proc/uptime", "/proc/schedstat", "/proc/interrupts",
             "/proc/sys/kernel/ns_last_pid", "/sys/fs/cgroup/cgroup.procs",
             "/sys/fs/cgroup/memory.pressure", "/sys/fs/cgroup/memory/memory.usage_in_bytes"):
    attempt(path, lambda: open(path, "rb").read(1))

finish()

