"""Problems that a function makes, kept so that later starts only read them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envs.cache_folder import locked, root
from envs.import_by_name import code_digest
from envs.problem import Problem
from envs.tasks.storage.arrow_schema import schema, to_batch, to_problem

if TYPE_CHECKING:
    import pyarrow as pa


def cached_problems(
    name: str, make: Callable[..., Sequence[Problem]], *given: object
) -> list[Problem]:
    """`make(*given)`, from disk where an earlier start left it.

    `name` begins the file's name; the rest depends on the arguments and on the source of the
    function and all that it imports. A file that cannot be read is made again.
    """
    code = code_digest(
        make.__module__, make.__module__.rpartition(".")[0], "envs.tasks.storage.arrow_schema"
    )
    key = hashlib.sha256(repr((make.__qualname__, given, code)).encode()).hexdigest()[:16]
    folder = root() / "made"
    file = folder / f"{name}-{key}.arrow"
    with locked(folder):
        try:
            batch = _read(file)
        except (OSError, ValueError):
            problems = make(*given)
            batch = to_batch(problems, [None] * len(problems))
            _write(file, batch)
    return [to_problem(batch, row, name) for row, name in enumerate(batch["name"].to_pylist())]


def _read(file: Path) -> pa.RecordBatch:
    """ValueError or OSError where it is not whole."""
    import pyarrow as pa

    reader = pa.ipc.open_file(pa.memory_map(str(file)))
    if not reader.schema.equals(schema()):
        raise ValueError(f"{file} has other columns")
    return reader.get_batch(0)


def _write(file: Path, batch: pa.RecordBatch) -> None:
    """Whole under its name, or not at all."""
    import pyarrow as pa

    temporary = file.with_suffix(".tmp")
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    temporary.replace(file)
