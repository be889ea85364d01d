"""Processes of this machine as /proc lists them; one that ends meanwhile is left out."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One row of the list of processes."""

    pid: int
    parent: int
    name: str  # at most 15 characters
    state: str  # one letter; Z: it has ended, but was not waited for


def process(pid: int | str) -> Process | None:
    """A process by its PID ("self": this one); None if there is none."""
    try:
        head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return None
    number, _, name = head.partition(" (")
    state, parent, *_ = tail.split()
    return Process(int(number), int(parent), name, state)


def processes() -> list[Process]:
    """All processes, those in inner PID namespaces too."""
    pids = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [listed for listed in map(process, pids) if listed is not None]


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    listed = process(pid)
    return listed is not None and listed.state not in "ZX"


def child_pids(pid: int | str = "self") -> list[int]:
    """PIDs of the children of a process that were not waited for, by the kernel's list."""
    pids = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread, or the process, has just ended
            pids += map(int, children.read_text().split())
    return pids


def command_line(pid: int | str) -> bytes:
    """The arguments of a process, each ended by a zero byte; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
