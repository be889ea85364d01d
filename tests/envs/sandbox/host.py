"""The host under attack: canaries that must stay untouched, and traces that must not appear.

Canaries are a file, listening sockets and a process; traces are processes, files, shared memory
and containers.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets as randomness
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.sandbox.docker import OWNER, owner


def stat_fields(pid: int | str) -> tuple[str, str, int] | None:
    """(name, state, parent) of a process, those in inner PID namespaces too; None without one."""
    try:
        head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return None
    state, parent, *_ = tail.split()
    return head.partition(" (")[2], state, int(parent)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    listed = stat_fields(pid)
    return listed is not None and listed[1] not in "ZX"


def child_pids(pid: int | str = "self") -> list[int]:
    """PIDs of the children of a process that were not waited for, by the kernel's list."""
    pids = []
    with contextlib.suppress(OSError):  # the process has just ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):  # the thread has
                children = Path(f"/proc/{pid}/task/{thread}/children").read_text()
                pids += map(int, children.split())
    return pids


def descendants() -> dict[int, str]:
    """The processes below this one, those in inner PID namespaces too: PID → name."""
    names, waiting = {}, [os.getpid()]
    while waiting:
        for child in child_pids(waiting.pop()):
            if listed := stat_fields(child):
                names[child] = listed[0]
                waiting.append(child)
    return names


def resident_mb(processes: dict[int, str]) -> float:
    """Return the resident size of these processes together."""
    pages = 0
    for pid in processes:
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def eventually(condition: Callable[[], Any], seconds: float = 60.0, pause: float = 0.01) -> Any:
    """Return what `condition` returns once that is true, or in the end."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(pause)
    return holds


@dataclass
class Canary:
    """Baits on the host, and the proof that no program has reached them."""

    nonce: str = field(default_factory=lambda: "spo" + randomness.token_hex(6))

    def __post_init__(self) -> None:
        # Not pytest's folder, which no other user may enter: only the sandbox shall be in the way.
        self.folder = Path(tempfile.mkdtemp(prefix="canary-"))
        self.folder.chmod(0o755)
        self.file = self.folder / "canary.txt"
        self.file.write_text(f"SECRET of the host {self.nonce}")
        self.file.chmod(0o644)
        self.state = self._state()
        self.listeners = [self._listen(socket.AF_INET, ("127.0.0.1", 0))]
        self.listeners.append(self._listen(socket.AF_UNIX, "\0" + self.nonce))
        self.port = self.listeners[0].getsockname()[1]
        self.datagrams = socket.socket(type=socket.SOCK_DGRAM)
        self.datagrams.bind(("127.0.0.1", self.port))
        self.datagrams.setblocking(False)
        # Longer than all attacks take on a slow machine.
        self.process = subprocess.Popen(["sleep", "7200"])

    @staticmethod
    def _listen(family: int, address: object) -> socket.socket:
        listener = socket.socket(family)
        listener.bind(address)
        listener.listen()
        listener.setblocking(False)
        return listener

    def _state(self) -> tuple[object, ...]:
        status = self.file.stat()
        names = sorted(path.name for path in self.folder.iterdir())
        return names, self.file.read_text(), status.st_mode, status.st_uid, status.st_mtime_ns

    def world(self) -> dict[str, object]:
        """Return what a program knows of the host."""
        host_files = {}
        for name in ("/etc/passwd", "/etc/shadow", "/etc/machine-id", "/etc/hosts", str(self.file)):
            if os.access(name, os.R_OK):
                host_files[name] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
        return {
            "file": str(self.file),
            "port": self.port,
            "pid": self.process.pid,
            "nonce": self.nonce,
            "host_files": host_files,
            "home": str(Path.home()),
            "home_names": sorted(os.listdir(Path.home())),
        }

    def check(self) -> None:
        """Assert that all is as it was."""
        assert self._state() == self.state
        for receive in (
            *(listener.accept for listener in self.listeners),
            lambda: self.datagrams.recv(1),
        ):
            with contextlib.suppress(BlockingIOError):
                raise AssertionError(f"the host's socket was reached: {receive()}")
        assert stat_fields(self.process.pid)[1] == "S"

    def close(self) -> None:
        """Remove all baits."""
        self.process.kill()
        self.process.wait()
        for opened in (*self.listeners, self.datagrams):
            opened.close()
        shutil.rmtree(self.folder)


@dataclass(frozen=True)
class Traces:
    """Traces that an attack could leave on the host."""

    processes: int
    named: list[int]  # processes that took the canary's name
    files: list[str]
    segments: int
    containers: tuple[int, int]  # that this process owns, and the processes in them

    @classmethod
    def now(cls, nonce: str, docker: bool) -> Traces:
        """Look at the whole host."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        named = [pid for pid in pids if (listed := stat_fields(pid)) and listed[0] == nonce[:15]]
        folders = ["/", "/tmp", "/var/tmp", "/dev/shm", "/dev", "/run", "/etc", "/root"]
        files = [
            os.path.join(folder, name)
            for folder in (*folders, os.getcwd())
            if os.access(folder, os.R_OK)
            for name in os.listdir(folder)
            if nonce in name or name.startswith("core.") or name == "core"
        ]
        segments = len(Path("/proc/sysvipc/shm").read_text().splitlines())
        return cls(len(descendants()), named, files, segments, _containers() if docker else (0, 0))


def _containers() -> tuple[int, int]:
    import docker

    client = docker.from_env()
    try:
        ours = client.api.containers(all=True, filters={"label": f"{OWNER}={owner()}"})
        return len(ours), sum(len(client.api.top(one["Id"])["Processes"]) for one in ours)
    except docker.errors.APIError:  # one has just ended
        return 0, 0
    finally:
        client.close()
