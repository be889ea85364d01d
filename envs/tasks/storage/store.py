"""Rows converted once: a folder of Arrow files that later starts only map into memory.

The rows of a source are converted in parts, each written whole under its final name, so that a
conversion which was killed goes on after its last part, losing nothing and doubling nothing. The
folder's name is a hash of the rows, of the limits on tests, and of the code that turns rows into
problems: where any of them differs, another folder is made.
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

from envs.cache_folder import locked, replace_file, root
from envs.import_by_name import code_digest
from envs.problem import Problem
from envs.tasks.loaders.field_parsers import SkipRow
from envs.tasks.storage.arrow_schema import schema, to_batch
from envs.tasks.storage.rows import read
from envs.tasks.storage.sources import Source
from envs.tasks.storage.test_limits import Limits, cap, why_left_out

if TYPE_CHECKING:
    import pyarrow as pa

STEPS = (read, why_left_out, cap, to_batch)  # what a row goes through besides its converter
PART_ROWS = 1000
PART_CHARS = 16_000_000  # of tests and programs: a part fits in memory many times over


@dataclass(frozen=True)
class Store:
    """The converted rows of one source, mapped into memory."""

    source: Source
    batches: list[pa.RecordBatch]
    rows: int
    skipped: Counter[str]  # why rows gave no problem → how many


class _Parts:
    """The part files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.done = folder, folder / "done.json"

    def whole(self) -> list[tuple[pa.RecordBatch, dict[str, Any]]]:
        """The parts from the first on, up to the first that is missing or broken; others go."""
        found: list[tuple[pa.RecordBatch, dict[str, Any]]] = []
        for file in sorted(self.folder.glob("part-*.arrow")):
            part = _open(file) if file == self._file(len(found)) else None
            if part is None or part[1]["first"] != _end(found):
                file.unlink()
            else:
                found.append(part)
        return found

    def complete(self) -> bool:
        """Whether everything was written, and still has the size that it had then."""
        try:
            sizes = json.loads(self.done.read_text())
            return sizes == self._sizes()
        except (OSError, ValueError):
            return False

    def add(self, number: int, batch: pa.RecordBatch, facts: dict[str, Any]) -> None:
        """Write a part; it has its name only once it is whole."""
        import pyarrow as pa

        batch = batch.replace_schema_metadata({"facts": json.dumps(facts)})
        temporary = self.folder / "part.tmp"
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        temporary.replace(self._file(number))

    def finish(self) -> None:
        replace_file(self.done, json.dumps(self._sizes()))

    def _sizes(self) -> dict[str, int]:
        return {file.name: file.stat().st_size for file in self.folder.glob("part-*.arrow")}

    def _file(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}.arrow"


def prepare(source: Source, limits: Limits, console: Console | None = None) -> Store:
    """The problems of a source, converted where they have not been; a bar shows on `console`.

    Raises ValueError and OSError where the source cannot be read; what was converted stays.
    """
    folder = root() / "problems" / f"{source.converter.prefix}-{_key(source, limits)}"
    parts = _Parts(folder)
    with locked(folder):
        if not parts.complete():
            parts.done.unlink(missing_ok=True)
            with _progress(source, console) as progress:
                _convert(source, limits, parts, progress)
            parts.finish()
        held = parts.whole()
    skipped = sum((Counter(facts["skipped"]) for _, facts in held), Counter())
    return Store(source, [batch for batch, _ in held], _end(held), skipped)


def _convert(source: Source, limits: Limits, parts: _Parts, progress: Progress) -> None:
    held = parts.whole()
    first, number = _end(held), len(held)
    bar = progress.add_task(source.label, total=source.rows, completed=first)
    if not first:
        source.converter.check(source.read(0), source.label)
    for part in _portions(read(source.converter, source.read(first), first)):
        problems = [cap(item, limits) for item in part if isinstance(item, Problem)]
        reasons = [why_left_out(problem) for problem in problems]
        skipped = Counter(str(item) for item in part if isinstance(item, SkipRow))
        facts = {"first": first, "rows": len(part), "skipped": skipped}
        parts.add(number, to_batch(problems, reasons), facts)
        first, number = first + len(part), number + 1
        progress.update(bar, completed=first)


def _portions(items: Iterator[Problem | SkipRow]) -> Iterator[list[Problem | SkipRow]]:
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


def _open(file: Path) -> tuple[pa.RecordBatch, dict[str, Any]] | None:
    """(the part, what was noted of it); None where the file is not a whole part."""
    import pyarrow as pa

    try:
        reader = pa.ipc.open_file(pa.memory_map(str(file)))
        facts = json.loads(reader.schema.metadata[b"facts"])
        batch = reader.get_batch(0)
        return (batch, facts) if batch.schema.equals(schema()) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _end(held: list[tuple[pa.RecordBatch, dict[str, Any]]]) -> int:
    """The number of source rows behind these parts."""
    return held[-1][1]["first"] + held[-1][1]["rows"] if held else 0


def _key(source: Source, limits: Limits) -> str:
    ours = code_digest(*{step.__module__ for step in STEPS})
    known = (source.converter.identity, source.identity, limits, ours)
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def _progress(source: Source, console: Console | None) -> Progress:
    columns = (TextColumn("preparing {task.description}"), BarColumn(), MofNCompleteColumn())
    shown = console or Console(stderr=True)
    elapsed = TimeElapsedColumn()
    return Progress(*columns, elapsed, console=shown, transient=True, disable=not shown.is_terminal)
