"""Files that are whole or absent, even after a power cut, and the lock of a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

BEFORE = "-before"  # .NAME-before is the former NAME, while another takes its place


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


def final_name(path: Path) -> Path:
    """Return the visible path of a hidden file or folder: its name after, or before, a rename."""
    return path.with_name(path.name.removeprefix(".").removesuffix(BEFORE))


def sync(path: Path) -> None:
    """Flush a file to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_arrow(table: pa.Table, path: Path) -> None:
    """Write a table as an Arrow file, which `read_arrow` maps into memory."""
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_arrow(path: Path) -> pa.Table:
    """Map an Arrow file into memory. Raises OSError or ArrowInvalid."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


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
