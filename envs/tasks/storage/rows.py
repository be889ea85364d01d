"""Rows of a data set, from JSON lines, parquet or Arrow, turned into problems.

Rows that cannot be judged are skipped and counted by reason; problems that accept any valid answer
stay, marked `needs_checker`.
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
from typing import Any

from envs.import_by_name import code_digest, load_function
from envs.judge.checker import comparable
from envs.problem import Problem
from envs.tasks.config import FieldsConfig
from envs.tasks.loaders import custom_dataset, field_parsers
from envs.tasks.loaders.field_parsers import Row, SkipRow


@dataclass(frozen=True)
class Converter:
    """`convert(row, name)` gives a problem, or raises SkipRow with the reason why not."""

    convert: Callable[[Row, str], Problem]
    prefix: str  # of the problems' names: the module's, e.g. "taco"
    identity: str  # another string wherever a row may become another problem
    fields: FieldsConfig | None = None  # what the function was told of the columns

    def check(self, rows: Iterable[Row | None], label: str) -> None:
        """Raises ValueError where the configuration names a column that none of `rows` has."""
        if self.fields is not None:
            custom_dataset.check_columns(self.fields, rows, label)


def converter(name: str, fields: FieldsConfig, key: str) -> Converter:
    """The converter of a dotted name; `key` is the configuration's name for it.

    A function with a third parameter `fields` is told task.fields. Its identity is that of its
    source and of all that it imports, so that nothing prepared by an older version is used.
    Raises ValueError, in one line.
    """
    function = load_function(name, key)
    code = code_digest(function.__module__, name.rpartition(".")[0])
    prefix = "own" if function is custom_dataset.problem else name.split(".")[-2]
    if "fields" in inspect.signature(function).parameters:
        custom_dataset.check_fields(fields)
        told = partial(function, fields=fields)
        return Converter(told, prefix, repr((name, code, fields)), fields)
    if fields != FieldsConfig():
        raise ValueError(f"task.fields is for task=own; {key}={name} knows its columns itself")
    return Converter(function, prefix, repr((name, code)))


def read_rows(path: Path, first: int = 0) -> Iterator[Row | None]:
    """The rows of a .jsonl, .parquet or .arrow file from a number on; None for a line not JSON.

    Raises ValueError for another kind of file or a broken one, OSError where it cannot be read.
    """
    if path.suffix in (".jsonl", ".json"):
        with path.open(encoding="utf-8", errors="surrogateescape") as lines:
            yield from map(_json_line, itertools.islice(filter(str.strip, lines), first, None))
    elif path.suffix in (".parquet", ".arrow"):
        try:
            for batch in _arrow_batches(path):
                yield from batch.slice(min(first, batch.num_rows)).to_pylist()
                first = max(0, first - batch.num_rows)
        except ValueError as error:
            raise ValueError(f"{path}: not a whole {path.suffix} file: {error}") from error
    else:
        raise ValueError(f"{path}: neither .jsonl nor .parquet nor .arrow")


def _arrow_batches(path: Path) -> Iterator[Any]:
    """Few rows at a time: those of whole contests hold megabytes each."""
    import pyarrow as pa
    import pyarrow.parquet

    if path.suffix == ".parquet":
        yield from pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=16)
        return
    with pa.memory_map(str(path)) as held:
        try:
            reader = pa.ipc.open_stream(held)  # as `datasets` saves it
        except pa.ArrowInvalid:
            whole = pa.ipc.open_file(held)
            reader = (whole.get_batch(i) for i in range(whole.num_record_batches))
        for batch in reader:
            for start in range(0, batch.num_rows, 16):
                yield batch.slice(start, 16)


def read(
    converter: Converter, rows: Iterable[Row | None], first: int = 0
) -> Iterator[Problem | SkipRow]:
    """For every row its problem, or why it gives none; `first` is the number of the first row.

    Nothing that stands in a row raises.
    """
    for number, row in enumerate(rows, first):
        if not isinstance(row, dict):
            yield SkipRow("the line is not a JSON object")
            continue
        try:
            yield _sound(converter.convert(row, f"{converter.prefix}/{number:05d}"))
        except SkipRow as reason:
            yield reason
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            # a column of another type than the data set's: one row is not worth a crash
            yield SkipRow(f"a column cannot be read ({type(error).__name__})")
        except RecursionError:
            yield SkipRow("a column is nested too deep")


def load(converter: Converter, path: Path) -> tuple[list[Problem], Counter[str]]:
    """(the problems of a file of rows, why other rows were skipped and how many).

    Raises as `read_rows`.
    """
    found = list(read(converter, read_rows(path)))
    problems = [item for item in found if isinstance(item, Problem)]
    names = unique([problem.name for problem in problems])
    problems = [replace(problem, name=name) for problem, name in zip(problems, names, strict=True)]
    return problems, Counter(str(item) for item in found if isinstance(item, SkipRow))


def unique(names: Iterable[str]) -> list[str]:
    """The second of the same name and all after it get `#2`, `#3`, …"""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return found


def _sound(problem: Problem) -> Problem:
    """The problem if all of it is of the right type and can be written down; else SkipRow."""
    tests = (*problem.samples, *problem.tests)
    named = (problem.statement, problem.starter_code, problem.difficulty, problem.source)
    texts = [*named, problem.name, problem.fn_name or "", *problem.tags]
    texts += [*problem.solutions, *problem.incorrect_solutions]
    texts += [text for test in tests for text in (test.input, test.output)]
    if not all(isinstance(text, str) for text in texts):
        raise SkipRow("a text is of another type")
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        raise SkipRow("a text is not Unicode") from None
    if problem.fn_name and not all(comparable("call", test.output) for test in problem.tests):
        raise SkipRow("an expected value is not JSON")
    limits = (problem.time_limit_s, problem.memory_limit_mb)
    if not all(limit is None or 0 < limit < 1e9 for limit in limits):
        raise SkipRow("a limit is not a positive number")
    return problem


def _json_line(line: str) -> Row | None:
    try:
        with field_parsers.integers_of_any_length():
            return json.loads(line)
    except (ValueError, RecursionError):
        return None
