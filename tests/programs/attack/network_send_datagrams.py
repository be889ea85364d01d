# name: network: send datagrams
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
def send(address):
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"secret", address)
attempt("loopback", send, ("127.0.0.1", world["port"]))
attempt("dns", send, ("8.8.8.8", 53))

finish()

