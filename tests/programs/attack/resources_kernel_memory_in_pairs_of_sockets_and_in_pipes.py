# name: resources: kernel memory in pairs of sockets and in pipes
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

import socket
written = 0
def fill(descriptor):
    global written
    os.set_blocking(descriptor, False)
    try:
        while True:
            written += os.write(descriptor, bytes(1 << 16))
    except BlockingIOError:
        pass
held = []
try:
    while True:
        held.append(socket.socketpair())
        fill(held[-1][0].fileno()), fill(held[-1][1].fileno())
except OSError:
    pass
if written > 96 << 20:
    leaks.append(f"{written >> 20}-MB")

finish()

