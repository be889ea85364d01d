"""Stores of converted rows: folders of Arrow files that later starts map into memory.

Rows are converted in parts. Each part is written atomically, so a killed conversion resumes after
its last complete part, without loss or duplicates. The folder's name is a hash of the rows, the
limits on tests, and the code that converts rows: a change in any of them gives another folder.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from envs.cache_folder import cache_root, locked_folder, replace_file
from envs.import_by_name import code_digest
from envs.problem import Problem
from envs.tasks.parsers.field_parsers import SkipRow
from envs.tasks.storage.arrow_schema import schema, to_batch
from envs.tasks.storage.generated_cache import write_batch
from envs.tasks.storage.rows import convert_rows, skipped_rows
from envs.tasks.storage.sources import Source
from envs.tasks.storage.test_limits import SizeLimits, limit_tests, why_left_out

if TYPE_CHECKING:
    import pyarrow as pa

STEPS = (convert_rows, why_left_out, limit_tests, to_batch)  # applied to every row
PART_ROWS = 1000
PART_CHARS = 16_000_000  # of tests and programs, so that a part fits in memory many times

# Problems, and {first, rows, skipped}; skipped is what `skipped_rows` returns.
Part = tuple["pa.RecordBatch", dict[str, Any]]


@dataclass(frozen=True)
class Store:
    """The converted rows of one source, mapped into memory."""

    source: Source
    batches: list[pa.RecordBatch]
    rows: int
    skipped: Counter[str]  # why rows gave no problem → how many
    first_skipped: dict[
        str, str
    ]  # the same reasons → the first of the rows, e.g. "line 3 of train.jsonl"


class _PartFiles:
    """The part files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.done = folder, folder / "done.json"

    def load(self) -> list[Part]:
        """Return the parts up to the first missing or broken one; delete the others."""
        parts: list[Part] = []
        for file in sorted(self.folder.glob("part-*.arrow")):
            part = _open_part(file) if file == self._file(len(parts)) else None
            if part is None or part[1]["first"] != _next_row(parts):
                file.unlink()
            else:
                parts.append(part)
        return parts

    def is_complete(self) -> bool:
        """Return whether all parts were written and still have the size they had then."""
        try:
            return json.loads(self.done.read_text()) == self._sizes()
        except (OSError, ValueError):
            return False

    def add(self, number: int, batch: pa.RecordBatch, notes: dict[str, Any]) -> None:
        """Write a part atomically."""
        batch = batch.replace_schema_metadata({"facts": json.dumps(notes)})
        write_batch(self._file(number), batch)

    def finish(self) -> None:
        replace_file(self.done, json.dumps(self._sizes()))

    def _sizes(self) -> dict[str, int]:
        return {file.name: file.stat().st_size for file in self.folder.glob("part-*.arrow")}

    def _file(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}.arrow"


def prepare_store(source: Source, limits: SizeLimits, console: Console | None = None) -> Store:
    """Return a source's problems, converting rows not yet converted, with a progress bar.

    Raises ValueError or OSError if the source cannot be read; converted parts stay.
    """
    folder = cache_root() / "problems" / f"{source.converter.prefix}-{_key(source, limits)}"
    files = _PartFiles(folder)
    with locked_folder(folder):
        if not files.is_complete():
            files.done.unlink(missing_ok=True)
            with _progress(console) as progress:
                _convert(source, limits, files, progress)
            files.finish()
        parts = files.load()
    skipped, first = Counter[str](), dict[str, str]()
    for _, notes in parts:
        for reason, (count, row) in notes["skipped"].items():
            skipped[reason] += count
            if reason not in first:
                first[reason] = f"{source.place(row)} of {source.label}"
    return Store(source, [batch for batch, _ in parts], _next_row(parts), skipped, first)


def _convert(source: Source, limits: SizeLimits, files: _PartFiles, progress: Progress) -> None:
    parts = files.load()
    first, number = _next_row(parts), len(parts)
    bar = progress.add_task(source.label, total=source.rows(), completed=first)
    if not first:
        others = (other.read(0) for other in source.others)
        source.converter.check(source.read(0), source.label, others)
    for part in _portions(convert_rows(source.converter, source.read(first), first)):
        problems = [limit_tests(item, limits) for item in part if isinstance(item, Problem)]
        reasons = [why_left_out(problem) for problem in problems]
        notes = {"first": first, "rows": len(part), "skipped": skipped_rows(part, first)}
        files.add(number, to_batch(problems, reasons), notes)
        first, number = first + len(part), number + 1
        progress.update(bar, completed=first)


def _portions(items: Iterator[Problem | SkipRow]) -> Iterator[list[Problem | SkipRow]]:
    """Cut converted rows into parts of at most PART_ROWS rows and about PART_CHARS characters."""
    portion: list[Problem | SkipRow] = []
    chars = 0
    for item in items:
        portion.append(item)
        chars += _chars(item) if isinstance(item, Problem) else 0
        if len(portion) == PART_ROWS or chars > PART_CHARS:
            yield portion
            portion, chars = [], 0
    if portion:
        yield portion


def _chars(problem: Problem) -> int:
    tests = sum(len(test.input) + len(test.output) for test in problem.tests)
    return tests + sum(map(len, (*problem.solutions, *problem.incorrect_solutions)))


def _open_part(file: Path) -> Part | None:
    """Open a part; None if the file is not complete."""
    import pyarrow as pa

    try:
        reader = pa.ipc.open_file(pa.memory_map(str(file)))
        notes = json.loads(reader.schema.metadata[b"facts"])
        batch = reader.get_batch(0)
        return (batch, notes) if batch.schema.equals(schema()) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _next_row(parts: list[Part]) -> int:
    """Return the number of source rows that the parts cover."""
    return parts[-1][1]["first"] + parts[-1][1]["rows"] if parts else 0


def _key(source: Source, limits: SizeLimits) -> str:
    code = code_digest(*{step.__module__ for step in STEPS})
    content = (source.converter.identity, source.identity, limits, code)
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def _progress(console: Console | None) -> Progress:
    shown_on = console or Console(stderr=True)
    return Progress(
        TextColumn("preparing {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=shown_on,
        transient=True,
        disable=not shown_on.is_terminal,
    )
