"""Whether a Ray cluster is at an address. Ray itself tries for 20 s and logs each attempt."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of calls that are submitted again
    # Otherwise Ray ends this process a minute after its cluster has gone, without a checkpoint.
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(10**6),
}
ANSWER_S = 10.0  # of a busy machine
# The beginning of every HTTP/2 connection, which Ray's RPCs use: a preface and a SETTINGS frame.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_FRAME_HEADER_BYTES, _FRAME_KIND, _SETTINGS_FRAME = 9, 3, 4


def set_environment(address: str | None) -> None:
    """Set what Ray reads from the environment. Call it before Ray is imported."""
    os.environ |= {name: os.environ.get(name, value) for name, value in SETTINGS.items()}
    if address and (Path.home() / ".ray" / "auth_token").is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` then does


def fault(address: str) -> str | None:
    """Why no cluster can be joined at HOST:PORT, where something accepts connections.

    None: there is one, or only Ray itself can find out.
    """
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return None
    host, _, port = address.rpartition(":")
    if not _speaks_http2(host, int(port)):
        return "what answers there is no Ray cluster"
    set_environment(address)
    try:
        from ray._raylet import GcsClient  # type: ignore[attr-defined]
    except ImportError:
        return None
    try:
        with _stderr_silenced():
            GcsClient(address=address)
    except Exception as error:  # Ray raises plain ones too
        return f"no Ray cluster answers there ({' '.join(str(error).split())})"
    return None


def _speaks_http2(host: str, port: int) -> bool:
    answer = b""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_S) as connection:
            connection.sendall(_PREFACE)
            while len(answer) < _FRAME_HEADER_BYTES and (part := connection.recv(64)):
                answer += part
    except OSError:
        return False
    return len(answer) >= _FRAME_HEADER_BYTES and answer[_FRAME_KIND] == _SETTINGS_FRAME


@contextmanager
def _stderr_silenced() -> Iterator[None]:
    """Close the process's stderr to what Ray's C++ code writes."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
