"""CPU time of everything that a way of judging makes work: this process, its descendants, the
engine, and the containers. Wall time says little on a shared machine; CPU time does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envs.sandbox.docker_client import LABEL

if TYPE_CHECKING:
    from docker import DockerClient

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SHIM = "containerd-shim"  # the name as the kernel cuts it; each container is below one
DEFAULT_HOST = "unix:///var/run/docker.sock"


@dataclass(frozen=True, slots=True)
class Process:
    """One line of /proc: `ticks` includes the children it has waited for."""

    pid: int
    parent: int
    name: str
    ticks: int


def processes() -> list[Process]:
    """All processes of this machine, as far as they are seen from here."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue  # it ended while we looked
        head, _, tail = stat.rpartition(")")
        fields = tail.split()
        name, ticks = head.partition("(")[2], sum(map(int, fields[11:15]))
        found.append(Process(int(entry.name), int(fields[1]), name, ticks))
    return found


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds so far: of everything, and, within it, of this process and of the engine.

    What runs in containers is counted in the first, but not as the engine's own. One that is gone
    takes its time with it: readings with other `containers` are not to be subtracted.
    """

    all_s: float
    host_s: float
    engine_s: float
    containers: frozenset[int] = frozenset()  # who holds them


class Meter:
    """Reads all clocks. Without an engine, those of this process and its descendants."""

    def __init__(self, client: DockerClient | None) -> None:
        self._client = client
        self._daemon = None if client is None else daemon_pid()

    def read(self) -> Cpu:
        """The CPU time so far."""
        ours = self._our_containers()
        table = processes()
        engine = [process for process in table if self._is_engine(process, ours)]
        children = defaultdict(list)
        for process in table:
            children[process.parent].append(process)
        pending = [process for process in table if process.pid == os.getpid()] + engine
        seen: dict[int, int] = {}
        while pending:
            process = pending.pop()
            if process.pid not in seen:
                seen[process.pid] = process.ticks
                pending += children[process.pid]
        return Cpu(
            all_s=sum(seen.values()) * TICK_S,
            host_s=time.process_time(),
            engine_s=sum(process.ticks for process in engine) * TICK_S,
            containers=frozenset(process.pid for process in engine if process.name == SHIM),
        )

    def _our_containers(self) -> set[bytes]:
        """The ids of this process's containers: other runs on the engine are not counted."""
        if self._client is None:
            return set()
        label = {"label": f"{LABEL}.pid={os.getpid()}"}
        return {found["Id"].encode() for found in self._client.api.containers(filters=label)}

    def _is_engine(self, process: Process, ours: set[bytes]) -> bool:
        if self._daemon is None:
            return False
        if process.name != SHIM:
            return process.pid == self._daemon or process.parent == self._daemon
        with contextlib.suppress(OSError):
            return bool(ours & set(Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")))
        return False


def daemon_pid() -> int | None:
    """Who listens at the engine's local socket; None where the engine is elsewhere."""
    kind, _, path = os.environ.get("DOCKER_HOST", DEFAULT_HOST).partition("://")
    if kind != "unix":
        return None
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[0]
