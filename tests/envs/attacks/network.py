"""Attacks through the network: the host's own port, the world, and other kinds of sockets."""

from tests.envs.attacks.base import kernel_probe, probe

ATTACKS = {
    "connect to the host's port": probe(
        """
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    attempt(address, lambda: socket.socket(family).connect((address, world["port"])))
attempt("create", lambda: socket.create_connection(("localhost", world["port"]), 0.2))
"""
    ),
    "connect to a public address": probe(
        """
import socket
def connect(address):
    with socket.socket() as client:
        client.settimeout(0.2)
        client.connect(address)
for address in (("1.1.1.1", 53), ("8.8.8.8", 443), ("169.254.169.254", 80)):
    attempt(address[0], connect, address)
"""
    ),
    "look up a name": probe(
        """
import socket
socket.setdefaulttimeout(0.2)
attempt("lookup", socket.gethostbyname, "example.com")
attempt("all", socket.getaddrinfo, "example.com", 80)
"""
    ),
    "send datagrams": probe(
        """
import socket
def send(address):
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"secret", address)
attempt("loopback", send, ("127.0.0.1", world["port"]))
attempt("dns", send, ("8.8.8.8", 53))
"""
    ),
    "abstract unix socket of the host": probe(
        """
import socket
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + world["nonce"]))
attempt("docker", lambda: socket.socket(socket.AF_UNIX).connect("/var/run/docker.sock"))
attempt("bus", lambda: socket.socket(socket.AF_UNIX).connect("/run/dbus/system_bus_socket"))
"""
    ),
    "raw, packet and netlink sockets": probe(
        """
import socket
attempt("raw", socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
attempt("packet", socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0)
attempt("vsock", lambda: socket.socket(socket.AF_VSOCK).connect((2, 1)))
attempt("alg", lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET).bind(("hash", "md5")))
"""
    ),
    "listen for the next program": probe(
        """
import socket
def listen():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    os.fork()
attempt("listen", listen)
"""
    ),
    "configure the network": kernel_probe(
        """
import fcntl, socket
def up():
    fcntl.ioctl(socket.socket(), 0x8914, b"lo".ljust(16, b"\\0") + b"\\1".ljust(16, b"\\0"))
attempt("interface", up)
syscall("sethostname", (170, 161), b"owned", 5)
"""
    ),
    "out of a pair of sockets": kernel_probe(
        """
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    try:
        one, other = socket.socketpair(type=kind)
    except OSError:
        continue
    for name in ("\\0" + world["nonce"], "/var/run/docker.sock"):
        attempt("connect", one.connect, name)
        attempt("send", one.sendto, b"secret", name)
        attempt("bind", one.bind, "\\0own-" + world["nonce"])
    attempt("listen", one.listen)
    attempt("descriptor", socket.send_fds, one, [b"x"], [0])
    syscall("dissolve", (42, 203), one.fileno(), (ctypes.c_short * 8)(), 16)
attempt("inet", socket.socketpair, socket.AF_INET)
"""
    ),
}
