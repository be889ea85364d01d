# name: resources: own folder below long paths
# tries: to exhaust the machine: its processes, memory, disk, time and patience
# verdicts: ACCEPTED OUTPUT_LIMIT
# time_limit: 10.0 s of CPU
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

# 17 names of 250 characters are longer than a path may be.
folder = os.open(".", os.O_RDONLY)
for _ in range(17):
    os.mkdir("x" * 250, dir_fd=folder)
    folder = os.open("x" * 250, os.O_RDONLY, dir_fd=folder)
written, block = 0, b"x" * (1 << 20)
try:
    for number in range(200):
        file = os.open(str(number), os.O_WRONLY | os.O_CREAT, dir_fd=folder)
        written += os.write(file, block)
        os.close(file)
except OSError:
    pass
print("HELD" if written < 64 << 20 else f"BROKEN: {written >> 20} MB")
