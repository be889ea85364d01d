"""Files that are whole or absent, even after a power cut, and the lock of a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.errors import UserError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a hidden file to write, which replaces `path` at the end of the block."""
    unfinished = path.with_name(f".{path.name}")
    try:
        yield unfinished
        sync(unfinished)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Flush a file to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_unlocked(folder: Path) -> None:
    """Raise UserError if another process has locked a folder."""
    os.close(lock(folder))


def lock(folder: Path) -> int:
    """Lock a folder for this process; closing the returned handle unlocks it.

    Raises UserError if another process has locked it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UserError(f"{folder}: this run is still active; wait for it or stop it") from None
    except OSError:  # a file system without locks
        pass
    return handle
