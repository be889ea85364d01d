# name: network: connect to the host's port
# tries: to reach the host's own port, the world, or other kinds of sockets
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
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    attempt(address, lambda: socket.socket(family).connect((address, world["port"])))
attempt("create", lambda: socket.create_connection(("localhost", world["port"]), 0.2))

finish()

