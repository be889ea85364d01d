"""Files that are whole or not there, after a power cut too, and a folder that one process has."""

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

BEFORE = "-before"  # .NAME-before is what was called NAME, while another takes its place


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file to write that replaces `path` when it is whole; until then readers pass over it."""
    unfinished = path.with_name(f".{path.name}")
    try:
        yield unfinished
        sync(unfinished)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def named(path: Path) -> Path:
    """What a hidden one, which another was about to replace, is called again."""
    return path.with_name(path.name.removeprefix(".").removesuffix(BEFORE))


def sync(path: Path) -> None:
    """Onto the disk, so that a file is whole after a power cut too."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_arrow(table: pa.Table, path: Path) -> None:
    """The table as an Arrow file, which `read_arrow` maps into memory."""
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_arrow(path: Path) -> pa.Table:
    """An Arrow file, mapped into memory. Raises OSError or ArrowInvalid."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def lock(folder: Path) -> int:
    """An open handle of the folder, which no other process has locked; its end unlocks it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UserError(f"{folder}: this run is still going on; wait, or end it first") from None
    except OSError:  # a file system without locks
        pass
    return handle
