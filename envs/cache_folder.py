"""The folder that keeps prepared data between runs, and safe writes to it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def root() -> Path:
    """SPO_BENCH_CACHE, else spo-bench in the user's cache folder. All of it can be deleted."""
    given = os.environ.get("SPO_BENCH_CACHE")
    if given:
        return Path(given).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "spo-bench"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time works in `folder`; the kernel lets go of a dead one's lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all, whoever else writes it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(path)
