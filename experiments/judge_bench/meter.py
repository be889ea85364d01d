"""CPU time of everything that a way of judging makes work: this process, its descendants, the
engine, and the containers. Wall time says little on a shared machine; CPU time does.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
ENGINE = ("dockerd", "containerd", "containerd-shim")  # names as the kernel cuts them


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

    The containers are descendants of the engine's shims; what runs in them counts as theirs.
    """

    all_s: float
    host_s: float
    engine_s: float


def cpu() -> Cpu:
    """Read off all clocks."""
    table = processes()
    children = defaultdict(list)
    for process in table:
        children[process.parent].append(process)
    engine = [process for process in table if process.name in ENGINE]
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
    )
