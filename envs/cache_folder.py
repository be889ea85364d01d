"""The folder that keeps prepared data between runs, and safe writes to it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_root() -> Path:
    """Return $SPO_BENCH_CACHE, else spo-bench in the user's cache folder. It may be deleted."""
    configured = os.environ.get("SPO_BENCH_CACHE")
    if configured:
        return Path(configured).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "spo-bench"


@contextmanager
def locked_folder(folder: Path, name: str = "lock") -> Iterator[None]:
    """Let one process at a time do the work `name` in `folder`. A dead process holds no lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def replace_file(path: Path, text: str) -> None:
    """Write a file atomically, even if other processes write it too."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(path)
