# name: escapes: sysrq and kernel settings
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

for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/sysrq",
             "/proc/sys/vm/drop_caches", "/proc/sys/kernel/hostname", "/proc/1/oom_score_adj",
             "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/cgroup.procs",
             "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"):
    attempt(path, lambda: open(path, "r+b"))

finish()

