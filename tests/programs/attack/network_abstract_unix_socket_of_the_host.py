# name: network: abstract unix socket of the host
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
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\0" + world["nonce"]))
attempt("docker", lambda: socket.socket(socket.AF_UNIX).connect("/var/run/docker.sock"))
attempt("bus", lambda: socket.socket(socket.AF_UNIX).connect("/run/dbus/system_bus_socket"))

finish()

