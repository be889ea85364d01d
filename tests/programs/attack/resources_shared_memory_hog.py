# name: resources: shared-memory hog
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

written = 0
def fill(descriptor):
    global written
    block = b"x" * (1 << 20)
    while written < 1 << 29:
        written += os.write(descriptor, block)
for number in range(200):
    try:
        descriptor = os.memfd_create(f"hog{number}")
        fill(descriptor)
    except OSError:
        continue
try:
    from multiprocessing import shared_memory
    for number in range(64):
        block = shared_memory.SharedMemory(create=True, size=8 << 20)
        block.buf[:] = b"x" * len(block.buf)
        written += len(block.buf)
except (OSError, ImportError):
    pass
if written > 256 << 20:
    leaks.append(f"{written >> 20}-MB")

finish()

