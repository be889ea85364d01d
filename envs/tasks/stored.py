"""Converted problems on disk: Arrow files that later starts map into memory.

A file has one row for each row of its source. One that gave no problem has only its place and the
reason. Columns that selection needs are read at once; tests and programs stay on disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from envs.caching import cache_root, locked_folder
from envs.problem import CheckerProgram, Problem, Test
from envs.tasks.strength import Strength, measure_strength

if TYPE_CHECKING:
    import pyarrow as pa

_TEXTS = ("name", "statement", "checker", "fn_name", "starter_code", "difficulty", "source", "date")
_INTEGERS = ("memory_limit_mb", "generated_tests", "rating")
_LISTS = ("tags", "solutions", "incorrect_solutions")
_TESTS = ("samples", "tests")
_BATCH_ROWS = 1000
_BATCH_CHARS = 16_000_000  # of tests and programs, so that a batch fits in memory many times
# in the order of Entry's fields after `name`
_SELECTED = (
    *("difficulty", "source", "tags", "digest", "statement_hash", "left_out", "rating", "date"),
)


@cache
def schema() -> pa.Schema:
    """The fields of a Problem, then columns that are computed once, when a row is converted."""
    import pyarrow as pa

    test = pa.struct([("input", pa.string()), ("output", pa.string())])
    counts = [(name, pa.int64()) for name in ("tests", "hidden", "distinct_outputs")]
    strength = pa.struct([*counts, ("cheap_passed", pa.list_(pa.int64()))])
    return pa.schema(
        [
            *((name, pa.string()) for name in _TEXTS),
            *((name, pa.list_(pa.string())) for name in _LISTS),
            *((name, pa.list_(test)) for name in _TESTS),
            ("time_limit_s", pa.float64()),
            *((name, pa.int64()) for name in _INTEGERS),
            ("checker_program", pa.struct([("language", pa.string()), ("source", pa.string())])),
            ("hash", pa.string()),  # Problem.hash: over everything that a verdict depends on
            ("digest", pa.string()),  # over everything but the name
            ("statement_hash", pa.string()),
            ("strength", strength),
            ("left_out", pa.string()),  # why the problem cannot be used; null if it can
            ("dropped_tests", pa.int64()),  # over task.max_test_bytes
            ("skipped", pa.string()),  # why the row gave no problem; null if it did
            ("place", pa.string()),  # of a skipped row in its file, such as "line 3"
        ]
    )


def row_of(problem: Problem, left_out: str | None = None) -> dict[str, Any]:
    """Return a problem as a row of `schema`."""
    return asdict(problem) | {
        "hash": problem.hash,
        "digest": content_digest(problem),
        "statement_hash": statement_hash(problem.statement),
        "strength": asdict(measure_strength(problem)),
        "left_out": left_out,
    }


def statement_hash(statement: str) -> str:
    """Return 14 hex digits over the statement's words."""
    return hashlib.sha256(" ".join(statement.split()).encode()).hexdigest()[:14]


def content_digest(problem: Problem) -> str:
    """Return 16 hex digits over everything but the name."""
    content = (problem.statement, problem.samples, problem.starter_code, problem.hash)
    programs = (problem.solutions, problem.incorrect_solutions)
    return hashlib.sha256(repr((*content, *programs)).encode()).hexdigest()[:16]


def stored_batches(
    file: Path, rows: Callable[[], Iterable[dict[str, Any]]]
) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow file, which is written from `rows()` if it is not there.

    Written atomically and by one process at a time: a killed conversion leaves no file.
    """
    import pyarrow as pa

    if not file.exists():
        with locked_folder(file.parent, f"{file.stem}.lock"):
            if not file.exists():  # written meanwhile
                temporary = file.with_suffix(".tmp")
                with (
                    pa.OSFile(str(temporary), "wb") as sink,
                    pa.ipc.new_file(sink, schema()) as writer,
                ):
                    for batch in _batches(rows()):
                        writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=schema()))
                temporary.replace(file)
    reader = pa.ipc.open_file(pa.memory_map(str(file)))
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    chars = 0
    for row in rows:
        batch.append(row)
        if "skipped" not in row:
            chars += sum(len(test["input"]) + len(test["output"]) for test in row["tests"])
            chars += sum(map(len, (*row["solutions"], *row["incorrect_solutions"])))
        if len(batch) == _BATCH_ROWS or chars > _BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored problem, with the columns that selection needs."""

    batch: pa.RecordBatch
    row: int
    name: str
    difficulty: str
    source: str
    tags: tuple[str, ...]
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
        return self.value("statement")

    @property
    def strength(self) -> Strength:
        return Strength(**self.value("strength"))

    @property
    def checker_language(self) -> str | None:
        """The language of the problem's checker program, if it has one."""
        program = self.value("checker_program")
        return program and program["language"]

    def value(self, column: str) -> Any:
        """Read one column of the problem's row."""
        return self.batch.column(column)[self.row].as_py()

    def problem(self, judged: bool = True) -> Problem:
        """Build the problem. Its hash is read, not recomputed.

        Without `judged`, tests and programs are left out, and their pages are not read.
        """
        unread = () if judged else ("tests", "solutions", "incorrect_solutions")
        (stored,) = self.batch.drop_columns(list(unread)).slice(self.row, 1).to_pylist()
        stored |= dict.fromkeys(unread, ())
        values = {key: stored[key] for key in (*_TEXTS, *_INTEGERS, "time_limit_s")}
        values |= {key: tuple(stored[key]) for key in _LISTS}
        values |= {key: tuple(Test(**test) for test in stored[key]) for key in _TESTS}
        checker = stored["checker_program"] and CheckerProgram(**stored["checker_program"])
        problem = Problem(**values | {"name": self.name, "checker_program": checker})
        vars(problem)["hash"] = stored["hash"]  # fills the cached property
        return problem


def load_entries(batches: Iterable[pa.RecordBatch], suffix: str = "") -> list[Entry]:
    """Return the problems of stored batches, in order. `suffix` ends their names."""
    entries = []
    for batch in batches:
        columns = [batch.column(column).to_pylist() for column in ("skipped", "name", *_SELECTED)]
        for row, (skipped, name, difficulty, source, tags, *others) in enumerate(
            zip(*columns, strict=True)
        ):
            if skipped is None:
                about = (f"{name}{suffix}", difficulty, source, tuple(tags))
                entries.append(Entry(batch, row, *about, *others))
    return entries


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
        return self.entries[index].problem()

    def without_tests(self) -> Iterator[Problem]:
        """Yield all problems without tests and programs, as much as a prompt needs."""
        return (entry.problem(judged=False) for entry in self.entries)

    @property
    def digest(self) -> str:
        """16 hex digits over all names and contents, in order."""
        content = repr([(entry.name, entry.digest) for entry in self.entries])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def cached_problems(
    name: str, key: object, generate: Callable[[], Sequence[Problem]]
) -> list[Problem]:
    """Return generated problems, read from disk if an earlier start stored them.

    The file's name is `name` and a hash of `key`, which has all that they depend on.
    """
    digest = hashlib.sha256(repr((key, str(schema()))).encode()).hexdigest()[:16]
    file = cache_root() / "made" / f"{name}-{digest}.arrow"
    entries = load_entries(stored_batches(file, lambda: map(row_of, generate())))
    return [entry.problem() for entry in entries]


def problem_names(problems: Sequence[Problem]) -> list[str]:
    """Return the names of problems; of stored ones without building them."""
    return [one.name for one in getattr(problems, "entries", problems)]


def strengths(problems: Sequence[Problem]) -> list[Strength]:
    """Return the strength of each problem's tests, which a prepared data set has on disk."""
    if isinstance(problems, StoredProblems):
        return [entry.strength for entry in problems.entries]
    return [measure_strength(problem) for problem in problems]


def checker_languages(problems: Sequence[Problem]) -> list[str]:
    """Return the languages of the problems' checker programs, one for each problem with one."""
    if isinstance(problems, StoredProblems):
        return [entry.checker_language for entry in problems.entries if entry.checker_language]
    programs = [problem.checker_program for problem in problems]
    return [program.language for program in programs if program]


def content_digests(problems: Sequence[Problem]) -> list[str]:
    """Return 16 hex digits for each problem, over everything but its name."""
    if isinstance(problems, StoredProblems):
        return [entry.digest for entry in problems.entries]
    return [content_digest(problem) for problem in problems]
