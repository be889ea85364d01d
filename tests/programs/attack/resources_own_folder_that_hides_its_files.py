# name: resources: own folder that hides its files
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

os.umask(0o477)
os.mkdir("hidden")
os.umask(0o22)
os.chdir("hidden")
written, block = 0, b"x" * (1 << 20)
try:
    for number in range(200):
        with open(str(number), "wb", buffering=0) as file:
            written += file.write(block)
except OSError:
    pass
print("HELD" if written < 64 << 20 else f"BROKEN: {written >> 20} MB")

