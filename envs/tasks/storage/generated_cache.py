"""Cache generated problems on disk, so that later starts only read them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envs.cache_folder import cache_root, locked_folder
from envs.import_by_name import code_digest
from envs.problem import Problem
from envs.tasks.storage.arrow_schema import schema, to_batch, to_problem

if TYPE_CHECKING:
    import pyarrow as pa


def cached_problems(
    name: str, generate: Callable[..., Sequence[Problem]], *arguments: object
) -> list[Problem]:
    """Return `generate(*arguments)`, read from disk if an earlier start stored it.

    The file's name is `name` and a hash of the arguments and of the function's source with all of
    its imports. An unreadable file is regenerated.
    """
    code = code_digest(
        generate.__module__,
        generate.__module__.rpartition(".")[0],
        "envs.tasks.storage.arrow_schema",
    )
    content = repr((generate.__qualname__, arguments, code))
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    folder = cache_root() / "made"
    file = folder / f"{name}-{key}.arrow"
    with locked_folder(folder):
        try:
            batch = _read(file)
        except (OSError, ValueError):
            problems = generate(*arguments)
            batch = to_batch(problems, [None] * len(problems))
            write_batch(file, batch)
    names = batch["name"].to_pylist()
    return [to_problem(batch, row, problem_name) for row, problem_name in enumerate(names)]


def write_batch(file: Path, batch: pa.RecordBatch) -> None:
    """Write an Arrow file atomically; a lock keeps other writers away."""
    import pyarrow as pa

    temporary = file.with_name("batch.tmp")
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    temporary.replace(file)


def _read(file: Path) -> pa.RecordBatch:
    """Read the batch. Raises ValueError or OSError if the file is not complete."""
    import pyarrow as pa

    reader = pa.ipc.open_file(pa.memory_map(str(file)))
    if not reader.schema.equals(schema()):
        raise ValueError(f"{file} has other columns")
    return reader.get_batch(0)
