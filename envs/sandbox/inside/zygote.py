"""Where test processes come from: a process that does nothing but fork, and so knows nothing.

The server reads programs, inputs and outputs, but is never forked. What is forked is the zygote,
which has seen none of them; the new process is the server's child. It is asked for over a socket: a
byte that says what is wanted, and the files for it.
"""

from __future__ import annotations

import os
import struct
from _socket import AF_UNIX, CMSG_SPACE, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket
from _socket import socketpair as _socketpair
from collections.abc import Callable

TEST, RUNNER, SWEEPER = b"T", b"R", b"S"
_PID_BYTES = _FILE_BYTES = 4
_ROOM = CMSG_SPACE(4 * _FILE_BYTES)  # for the files of one request


def socketpair() -> tuple[socket, socket]:
    """Two ends that keep messages apart."""
    return _socketpair(AF_UNIX, SOCK_SEQPACKET)


def socket_of(end: int) -> socket:
    """An end of a `socketpair` that came as a descriptor. Said what it is, since a container's
    filter lets nobody ask the kernel."""
    return socket(AF_UNIX, SOCK_SEQPACKET, 0, end)


class Forker:
    """The server's end: asks for processes, which are then the server's own children."""

    def __init__(self, end: socket) -> None:
        self._end = end

    def fork(self, kind: bytes, files: list[int]) -> int:
        """The PID of a new process that was given these files. Exits where nobody is there."""
        rights = struct.pack(f"{len(files)}i", *files)
        try:
            self._end.sendmsg([kind], [(SOL_SOCKET, SCM_RIGHTS, rights)])
            pid = self._end.recv(_PID_BYTES)
        except ConnectionError:
            os._exit(1)
        if not pid:
            os._exit(1)
        return int.from_bytes(pid, "big")


def serve_forks(end: socket, start: Callable[[bytes, tuple[int, ...]], int]) -> None:
    """Call `start`, which forks, for each request, until the other end is closed. Never returns.

    It returns the PID here and never in the new process. Short, with all that it calls: after a
    fork, each page that either process writes to is copied.
    """
    while True:
        kind, rights, _, _ = end.recvmsg(1, _ROOM)
        if not kind:
            os._exit(0)
        data = rights[0][2] if rights else b""
        files = struct.unpack(f"{len(data) // _FILE_BYTES}i", data)
        end.send(start(kind, files).to_bytes(_PID_BYTES, "big"))
        for file in files:
            os.close(file)
