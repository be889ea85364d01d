# name: resources: own folder filled by files
# tries: to exhaust the machine: its processes, memory, disk, time and patience
# verdicts: ACCEPTED OUTPUT_LIMIT
# note: OUTPUT_LIMIT where the server looks from time to time
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

block, written = b"x" * (1 << 20), 0
def fill(name):
    global written
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT)
    try:
        while written < 1 << 30:
            written += os.write(descriptor, block)
    except OSError as error:
        return error.errno == errno.ENOSPC
    finally:
        if name.startswith("unlinked"):
            os.unlink(name)
        else:
            os.close(descriptor)
for number in range(500):
    if fill(f"linked-{number}") or fill(f"unlinked-{number}"):
        break
print("HELD" if written < 64 << 20 else f"BROKEN: {written >> 20} MB")

