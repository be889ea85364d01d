"""Which problems of prepared stores a task takes, without reading their tests and programs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

from envs.problem import Problem
from envs.tasks.config import FilterConfig
from envs.tasks.storage.arrow_schema import to_problem
from envs.tasks.storage.rows import unique
from envs.tasks.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Entry:
    """A problem of a store, by what a selection asks about it."""

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

    @property
    def place(self) -> float:
        """In [0, 1), from the statement: where it falls among the splits."""
        return int(self.statement_hash, 16) / 16 ** len(self.statement_hash)

    @property
    def statement(self) -> str:
        return self.batch.column("statement")[self.row].as_py()


class StoredProblems(Sequence[Problem]):
    """Problems that stay on disk: each is made when it is asked for, and not kept."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = list(entries)

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> StoredProblems: ...
    def __getitem__(self, index):
        if isinstance(index, slice):
            return StoredProblems(self.entries[index])
        entry = self.entries[index]
        return to_problem(entry.batch, entry.row, entry.name)

    def without_tests(self) -> Iterator[Problem]:
        """All of them as a reader is told them: without tests and programs."""
        for entry in self.entries:
            yield to_problem(entry.batch, entry.row, entry.name, judged=False)

    @property
    def digest(self) -> str:
        """16 hex digits over all names and contents, in order."""
        known = repr([(entry.name, entry.digest) for entry in self.entries])
        return hashlib.sha256(known.encode()).hexdigest()[:16]


def load_entries(stores: Sequence[Store], alone: bool) -> list[Entry]:
    """The problems of stores, in order, under unique names: those of a file that does not stand
    `alone` in its task carry its name too.
    """
    found = [(store, *at) for store in stores for at in _light(store)]
    names = [name if alone else f"{name}@{store.source.stem}" for store, _, _, name, *_ in found]
    return [
        Entry(batch, row, name, *rest)
        for name, (_, batch, row, _, *rest) in zip(unique(names), found, strict=True)
    ]


def _light(store: Store) -> Iterator[tuple]:
    """(batch, row, and the columns named below) of each problem."""
    columns = (
        "name",
        "difficulty",
        "source",
        "tags",
        "hash",
        "digest",
        "statement_hash",
        "left_out",
    )
    for batch in store.batches:
        held = [batch.column(column).to_pylist() for column in columns]
        for row, (name, difficulty, source, tags, *rest) in enumerate(zip(*held, strict=True)):
            yield batch, row, name, difficulty, source, tuple(tags), *rest


class Filter:
    """Lets through what can be judged and what task.filter and task.quality ask for."""

    def __init__(self, wanted: FilterConfig, quality: str | None) -> None:
        """Raises ValueError and OSError where the quality file cannot be used."""
        self.wanted = {
            field: {value.lower() for value in getattr(wanted, field)}
            for field in ("difficulty", "source", "tags")
        }
        self.good = _good_statements(quality) if quality else None

    def keep(self, entries: Sequence[Entry], left_out: Counter[str]) -> list[Entry]:
        """The entries that pass; the reasons of the others are counted in `left_out`."""
        reasons = [self._reason(entry) for entry in entries]
        left_out.update(reason for reason in reasons if reason)
        return [entry for entry, reason in zip(entries, reasons, strict=True) if reason is None]

    def _reason(self, entry: Entry) -> str | None:
        if entry.left_out:
            return entry.left_out
        for field, values in self.wanted.items():
            own = getattr(entry, field)
            if values and not values & {
                text.lower() for text in ((own,) if isinstance(own, str) else own)
            }:
                return f"not of task.filter.{field}"
        if self.good is not None and entry.statement_hash not in self.good:
            return "not good by task.quality"
        return None


def _good_statements(file: str) -> set[str]:
    """Of a file of `python -m envs.validate`, the statements' hashes of the good problems."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if not Path(file).is_file():
        raise ValueError(
            f"task.quality={file}: no such file; `python -m envs.validate … quality=FILE` makes one"
        )
    # A hash of digits alone is no number.
    typed = pyarrow.csv.ConvertOptions(column_types={"statement": pa.string()})
    readers = {
        ".parquet": pyarrow.parquet.read_table,
        ".csv": lambda path: pyarrow.csv.read_csv(path, convert_options=typed),
    }
    if Path(file).suffix not in readers:
        raise ValueError(f"task.quality={file}: it must end in .parquet or .csv")
    try:
        rows = readers[Path(file).suffix](file).select(["statement", "good"]).to_pylist()
    except (KeyError, ValueError) as error:
        raise ValueError(f"task.quality={file}: not a file of envs.validate: {error}") from error
    return {row["statement"] for row in rows if row["good"]}
