"""Select problems from prepared stores without reading their tests and programs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from envs.hidden_tests import Strength, measure_strength
from envs.problem import Problem
from envs.tasks.config import FilterConfig
from envs.tasks.row_selection import RowSelection
from envs.tasks.storage.arrow_schema import content_digest, to_problem
from envs.tasks.storage.rows import unique_names
from envs.tasks.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

ROOT = Path(__file__).resolve().parents[2]  # where a table that comes with the project is
# of a stored problem, in the order of Entry's fields after `name`
_COLUMNS = (
    *("difficulty", "source", "tags", "hash", "digest", "statement_hash", "left_out"),
    *("rating", "date"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored problem, with the columns that selection needs."""

    batch: pa.RecordBatch
    row: int
    name: str
    difficulty: str
    source: str
    tags: tuple[str, ...]
    hash: str
    digest: str
    statement_hash: str
    left_out: str | None
    rating: int | None
    date: str

    @property
    def split_position(self) -> float:
        """Position in [0, 1), from the statement, that decides the split of a file's problem."""
        return int(self.statement_hash, 16) / 16 ** len(self.statement_hash)

    @property
    def statement(self) -> str:
        return self.batch.column("statement")[self.row].as_py()

    @property
    def checker_language(self) -> str | None:
        """The language of the problem's checker program, if it has one."""
        program = self.batch.column("checker_program")[self.row].as_py()
        return program and program["language"]

    @property
    def strength(self) -> Strength:
        return Strength(**self.batch.column("strength")[self.row].as_py())


class StoredProblems(Sequence[Problem]):
    """Problems that stay on disk: each access builds one, and none is cached."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = list(entries)

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> StoredProblems: ...
    def __getitem__(self, index: int | slice) -> Problem | StoredProblems:
        if isinstance(index, slice):
            return StoredProblems(self.entries[index])
        entry = self.entries[index]
        return to_problem(entry.batch, entry.row, entry.name)

    def without_tests(self) -> Iterator[Problem]:
        """Yield all problems without tests and programs, as much as a prompt needs."""
        for entry in self.entries:
            yield to_problem(entry.batch, entry.row, entry.name, judged=False)

    def count_tests(self) -> tuple[int, int]:
        """Return (number of tests, bytes of their inputs and outputs), from lengths alone."""
        import pyarrow.compute as pc

        count = size = 0
        for entry in self.entries:
            tests = entry.batch.column("tests")
            start, end = (tests.offsets[entry.row + i].as_py() for i in (0, 1))
            count += end - start
            for part in ("input", "output"):
                texts = tests.values.field(part).slice(start, end - start)
                size += pc.sum(pc.binary_length(texts)).as_py() or 0
        return count, size

    @property
    def digest(self) -> str:
        """16 hex digits over all names and contents, in order."""
        content = repr([(entry.name, entry.digest) for entry in self.entries])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def strengths(problems: Sequence[Problem]) -> list[Strength]:
    """Return the strength of each problem's tests, which a prepared data set has on disk."""
    if isinstance(problems, StoredProblems):
        return [entry.strength for entry in problems.entries]
    return [measure_strength(problem) for problem in problems]


def checker_languages(problems: Sequence[Problem]) -> list[str]:
    """Return the languages of the problems' checker programs, one for each problem with one."""
    found: list[str | None]
    if isinstance(problems, StoredProblems):
        found = [entry.checker_language for entry in problems.entries]
    else:
        programs = [problem.checker_program for problem in problems]
        found = [program.language if program else None for program in programs]
    return [language for language in found if language]


def content_digests(problems: Sequence[Problem]) -> list[str]:
    """Return 16 hex digits for each problem, over everything but its name."""
    if isinstance(problems, StoredProblems):
        return [entry.digest for entry in problems.entries]
    return [content_digest(problem) for problem in problems]


def load_entries(stores: Sequence[Store], alone: bool) -> list[Entry]:
    """Return the problems of stores, in order, under unique names.

    Unless its file is `alone` in the task, a problem's name also carries the file's name.
    """
    rows: list[tuple[str, tuple[Any, ...]]] = []
    for store in stores:
        suffix = "" if alone else f"@{store.source.stem}"
        for batch in store.batches:
            names = batch.column("name").to_pylist()
            columns = [batch.column(column).to_pylist() for column in _COLUMNS]
            for row, (name, *values) in enumerate(zip(names, *columns, strict=True)):
                rows.append((f"{name}{suffix}", (batch, row, *values)))
    return [
        Entry(batch, row, name, difficulty, source, tuple(tags), *others)
        for name, (_, (batch, row, difficulty, source, tags, *others)) in zip(
            unique_names(name for name, _ in rows), rows, strict=True
        )
    ]


class Filter:
    """Keeps problems that can be judged, and that match the keys of the task that choose some."""

    def __init__(
        self,
        config: FilterConfig,
        quality: str | None,
        rows: RowSelection | None = None,
        *,
        checkers: bool = True,
    ) -> None:
        """Raises ValueError or OSError if the quality file cannot be used."""
        self.rows, self.checkers = rows, checkers
        self.values = {
            field: {value.lower() for value in getattr(config, field)}
            for field in ("difficulty", "source", "tags")
        }
        self.good = _good_statements(quality) if quality else None

    def keep(self, entries: Sequence[Entry], left_out: Counter[str]) -> list[Entry]:
        """Return the entries that pass; count the reasons for the others in `left_out`."""
        if self.rows:
            self.rows.note(entries)
        reasons = [self._reason(entry) for entry in entries]
        left_out.update(reason for reason in reasons if reason)
        return [entry for entry, reason in zip(entries, reasons, strict=True) if reason is None]

    def _reason(self, entry: Entry) -> str | None:
        return entry.left_out or self.mismatch(entry)

    def mismatch(self, entry: Entry) -> str | None:
        """Return which of the keys that choose problems an entry fails, or None."""
        if not self.checkers and entry.checker_language:
            return "has a checker program (task.checkers=false)"
        for field, values in self.values.items():
            value = getattr(entry, field)
            texts = (value,) if isinstance(value, str) else value
            if values and not values & {text.lower() for text in texts}:
                return f"not of task.filter.{field}"
        if self.good is not None and entry.statement_hash not in self.good:
            return "not good by task.quality"
        return self.rows.mismatch(entry) if self.rows else None


def _good_statements(file: str) -> set[str]:
    """Read the statement hashes of good problems from a file of `python -m envs.validate`."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    path = Path(file)
    if not path.is_file():
        path = ROOT / file
    if not path.is_file():
        raise ValueError(
            f"task.quality={file}: no such file; `python -m envs.validate … quality=FILE` makes one"
        )
    if path.suffix not in (".parquet", ".csv"):
        raise ValueError(f"task.quality={file}: it must end in .parquet or .csv")
    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
        else:  # a hash of digits alone is not a number
            hashes = pyarrow.csv.ConvertOptions(column_types={"statement": pa.string()})
            table = pyarrow.csv.read_csv(path, convert_options=hashes)
        rows = table.select(["statement", "good"]).to_pylist()
    except (KeyError, ValueError) as error:
        raise ValueError(f"task.quality={file}: not a file of envs.validate: {error}") from error
    return {row["statement"] for row in rows if row["good"]}
