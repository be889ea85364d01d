"""Read rows of a data set (JSON lines, Parquet or Arrow) and convert them to problems.

`task.rows` names the function that converts a row. Rows that give no problem are skipped and
counted by reason. Problems that accept several answers are kept, marked `needs_checker`.
"""

from __future__ import annotations

import inspect
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from envs.import_by_name import code_digest, load_function
from envs.judge.checker_program import PROGRAM
from envs.judge.checkers import comparable, is_checker
from envs.problem import Problem
from envs.tasks.config import FieldsConfig
from envs.tasks.loaders import custom_dataset, own_columns
from envs.tasks.parsers import field_parsers
from envs.tasks.parsers.field_parsers import Row, SkipRow
from envs.tasks.storage.json_array import array_items, starts_array

ARROW_ROWS = 16  # read at once: the rows of whole contests hold megabytes each


@dataclass(frozen=True)
class Converter:
    """`convert(row, name)` returns a problem, or raises SkipRow with the reason."""

    convert: Callable[[Row, str], Problem]
    prefix: str  # of problem names: the data set, e.g. "taco"
    identity: str  # changes whenever a row may become another problem
    fields: FieldsConfig | None = None  # if the function takes task.fields

    def check(
        self,
        rows: Iterable[Row | None],
        label: str,
        others: Iterable[Iterable[Row | None]] = (),
    ) -> None:
        """Raise ValueError if the configuration names a column that none of `rows` has.

        `others`: the rows of the data set's other files, which may have it in their place.
        """
        if self.fields is not None:
            own_columns.check_columns(self.fields, rows, label, others)

    def hint(self, rows: Iterable[Row | None]) -> str | None:
        """Return what `rows` show to be probably missing in the configuration."""
        return own_columns.function_hint(self.fields, rows) if self.fields is not None else None


def load_converter(name: str | None, fields: FieldsConfig, key: str) -> Converter:
    """Load the converter that the configuration key `key` names (package.module.function).

    A function with a parameter `fields` gets task.fields. The converter's identity covers its
    source and everything it imports, so problems prepared by older code are not reused. Raises
    ValueError in one line.
    """
    if name is None:
        raise ValueError(f"{key} is missing: a function from a row to a problem")
    function = load_function(name, key)
    code = code_digest(function.__module__, name.rpartition(".")[0])
    prefix = "own" if function is custom_dataset.problem else name.split(".")[-2]
    if "fields" in inspect.signature(function).parameters:
        own_columns.check_fields(fields)
        convert = partial(function, fields=fields)
        return Converter(convert, prefix, repr((name, code, fields)), fields)
    if fields != FieldsConfig():
        raise ValueError(f"task.fields is for task=own; {key}={name} knows its columns itself")
    return Converter(function, prefix, repr((name, code)))


def read_rows(path: Path, first: int = 0) -> Iterator[Row | None]:
    """Yield the rows of a file from number `first` on; None for a line that is not JSON.

    Raises ValueError for an unknown suffix or a broken file, OSError if it cannot be read.
    """
    if path.suffix in (".jsonl", ".json"):
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            try:
                yield from read_json(file, first)
            except ValueError as error:
                raise ValueError(f"{path}: not a whole {path.suffix} file: {error}") from error
    elif path.suffix in (".parquet", ".arrow"):
        try:
            for batch in _arrow_batches(path):
                yield from batch.slice(min(first, batch.num_rows)).to_pylist()
                first = max(0, first - batch.num_rows)
        except ValueError as error:
            raise ValueError(f"{path}: not a whole {path.suffix} file: {error}") from error
    else:
        raise ValueError(f"{path}: neither .jsonl nor .json nor .parquet nor .arrow")


def place_in_file(path: Path, row: int) -> str:
    """Return where a row stands, from its number from 1: "line 3" as an editor counts, or "row 3".

    Blank lines hold no row.
    """
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            if not starts_array(file):
                numbers = (number for number, line in enumerate(file, 1) if line.strip())
                return f"line {next(itertools.islice(numbers, row - 1, None), row)}"
    return f"row {row}"


def read_json(file: TextIO, first: int) -> Iterator[Row | None]:
    """Yield the rows of JSON lines, or of one JSON array; None for what is not JSON.

    Raises ValueError for an array that is not closed.
    """
    texts = array_items(file) if starts_array(file) else filter(str.strip, file)
    yield from map(_parse_line, itertools.islice(texts, first, None))


def _arrow_batches(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet

    if path.suffix == ".parquet":
        yield from pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=ARROW_ROWS)
        return
    with pa.memory_map(str(path)) as mapped:
        try:
            batches = pa.ipc.open_stream(mapped)  # the format that `datasets` saves
        except pa.ArrowInvalid:
            file = pa.ipc.open_file(mapped)
            batches = (file.get_batch(i) for i in range(file.num_record_batches))
        for batch in batches:
            for start in range(0, batch.num_rows, ARROW_ROWS):
                yield batch.slice(start, ARROW_ROWS)


# of a column of an unexpected type, or of a parser (html.parser asserts): not worth a crash
_ERRORS_OF_A_ROW = (
    *(TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError),
)


def convert_rows(
    converter: Converter, rows: Iterable[Row | None], first: int = 0
) -> Iterator[Problem | SkipRow]:
    """Yield each row's problem, or the reason why it has none; `first` numbers the first row.

    No content of a row raises.
    """
    for number, row in enumerate(rows, first):
        if not isinstance(row, dict):
            yield SkipRow("the line is not a JSON object")
            continue
        try:
            yield _check(converter.convert(row, f"{converter.prefix}/{number:05d}"))
        except SkipRow as reason:
            yield reason
        except KeyError as error:
            yield SkipRow(f"column {str(error.args[0])[:40]!r} is missing")
        except _ERRORS_OF_A_ROW as error:
            yield SkipRow(f"a column cannot be read ({type(error).__name__})")
        except RecursionError:
            yield SkipRow("a column is nested too deep")


def skipped_rows(items: Iterable[Problem | SkipRow], first: int) -> dict[str, list[int]]:
    """{reason: [how many rows it left out, the first one's number, from 1]} of converted rows."""
    counts: dict[str, list[int]] = {}
    for number, item in enumerate(items, first + 1):
        if isinstance(item, SkipRow):
            counts.setdefault(str(item), [0, number])[0] += 1
    return counts


def load_problems(converter: Converter, path: Path) -> tuple[list[Problem], Counter[str]]:
    """Return (the problems of a file of rows, counts of the reasons for skipped rows).

    Raises like `read_rows`.
    """
    converted = list(convert_rows(converter, read_rows(path)))
    problems = [item for item in converted if isinstance(item, Problem)]
    names = unique_names(problem.name for problem in problems)
    problems = [replace(problem, name=name) for problem, name in zip(problems, names, strict=True)]
    return problems, Counter(str(item) for item in converted if isinstance(item, SkipRow))


def unique_names(names: Iterable[str]) -> list[str]:
    """Append `#2`, `#3`, … to the second and later occurrences of a name."""
    counts: Counter[str] = Counter()
    unique = []
    for name in names:
        counts[name] += 1
        unique.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return unique


def _check(problem: Problem) -> Problem:
    """Return a problem whose types, texts and limits are sound; else raise SkipRow."""
    tests = (*problem.samples, *problem.tests)
    texts = [problem.statement, problem.starter_code, problem.difficulty, problem.source]
    texts += [problem.name, problem.fn_name or "", problem.date, *problem.tags]
    texts += [problem.checker_program.source] if problem.checker_program else []
    texts += [*problem.solutions, *problem.incorrect_solutions]
    texts += [text for test in tests for text in (test.input, test.output)]
    if not all(isinstance(text, str) for text in texts):
        raise SkipRow("a text is of another type")
    if not problem.statement.strip():
        raise SkipRow("no statement")
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        raise SkipRow("a text is not Unicode") from None
    marked = problem.checker == "needs_checker"
    if not (marked or problem.checker == PROGRAM or is_checker(problem.checker)):
        raise SkipRow(f"there is no checker {problem.checker[:60]!r}")
    checker = "call" if marked and problem.fn_name else problem.checker
    if not all(comparable(checker, test.output) for test in problem.tests):
        raise SkipRow("an expected value is not JSON")
    limits = (problem.time_limit_s, problem.memory_limit_mb)
    if not all(limit is None or 0 < limit < 1e9 for limit in limits):
        raise SkipRow("a limit is not a positive number")
    if problem.rating is not None and not 0 <= problem.rating < 1e9:
        raise SkipRow("a rating is not a positive number")
    return problem


def _parse_line(line: str) -> Row | None:
    try:
        with field_parsers.integers_of_any_length():
            return json.loads(line.removeprefix("\ufeff"))  # of a file saved on Windows
    except (ValueError, RecursionError):
        return None
