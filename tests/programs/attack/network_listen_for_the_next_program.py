# name: network: listen for the next program
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
def listen():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    os.fork()
attempt("listen", listen)

finish()

