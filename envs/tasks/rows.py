"""Rows of public contest data sets, in their original schemas, turned into problems.

TACO, CodeContests and APPS, from JSON lines or parquet. Rows that cannot be judged are skipped
and counted by reason; problems that accept any valid answer stay, marked `needs_checker`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from envs.problem import Problem, Test
from envs.tasks import fields
from envs.tasks.fields import SkipRow
from envs.tasks.special_judge import comparing_checker, why_needs_checker

Row = Mapping[str, Any]

_PYTHON_3 = 3  # CodeContests' number for the language
_CODE_CONTESTS_SOURCES = (
    "UNKNOWN_SOURCE",
    "CODECHEF",
    "CODEFORCES",
    "HACKEREARTH",
    "CODEJAM",
    "ATCODER",
    "AIZU",
)


def taco_problem(row: Row, name: str) -> Problem:
    """A problem from a row of TACO or APPS, whose statements show their own samples.

    Call-based if the row names a function or brings starter code. Raises SkipRow.
    """
    held = fields.load_json(row.get("input_output"), "input_output")
    if not isinstance(held, dict):
        raise SkipRow("input_output is not an object")
    starter_code = row.get("starter_code") or ""
    fn_name = fields.function_name(held.get("fn_name"), starter_code)
    read = fields.call_tests if fn_name else fields.stdin_tests
    tests = read(held.get("inputs"), held.get("outputs"))
    statement = row.get("question") or ""
    return Problem(
        name=name,
        statement=statement,
        samples=(),
        tests=tests,
        checker=_checker(statement, tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        time_limit_s=fields.seconds(row.get("time_limit")),
        memory_limit_mb=fields.megabytes(row.get("memory_limit")),
        difficulty=row.get("difficulty") or "",
        tags=fields.tag_list(row.get("tags")),
        source=row.get("source") or "",
        solutions=fields.programs(row.get("solutions"), "solutions"),
        incorrect_solutions=fields.programs(row.get("incorrect_solutions"), "incorrect_solutions"),
    )


def code_contests_problem(row: Row, name: str) -> Problem:
    """A problem from a row of CodeContests: all its tests, and its Python 3 programs.

    Raises SkipRow, also for a problem that reads or writes files.
    """
    if row.get("input_file") not in (None, "", "stdin"):
        raise SkipRow("reads a file")
    if row.get("output_file") not in (None, "", "stdout"):
        raise SkipRow("writes a file")
    samples = _code_contests_tests(row, "public_tests")
    hidden = _code_contests_tests(row, "private_tests", "generated_tests")
    tests = tuple(dict.fromkeys(samples + hidden))
    if not tests:
        raise SkipRow("no tests")
    statement = row.get("description") or ""
    source = row.get("source") or 0
    memory_bytes = row.get("memory_limit_bytes") or 0
    return Problem(
        name=name,
        statement=statement,
        samples=samples,
        tests=tests,
        checker=_checker(statement, tests, None),
        time_limit_s=_duration(row.get("time_limit")),
        memory_limit_mb=-(-memory_bytes // 2**20) or None,
        difficulty=str(row.get("difficulty") or ""),
        tags=tuple(tag for tag in row.get("cf_tags") or () if tag),
        source=_source(source),
        solutions=_python_3(row.get("solutions")),
        incorrect_solutions=_python_3(row.get("incorrect_solutions")),
    )


def read_rows(path: Path) -> Iterator[Row | None]:
    """The rows of a .jsonl or .parquet file, in order; None for a line that is not JSON.

    Raises ValueError for another kind of file, OSError where it cannot be read.
    """
    if path.suffix == ".parquet":
        import pyarrow.parquet

        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=64):
            yield from batch.to_pylist()
    elif path.suffix in (".jsonl", ".json"):
        with path.open(encoding="utf-8") as lines:
            yield from map(_json_line, filter(str.strip, lines))
    else:
        raise ValueError(f"{path}: neither .jsonl nor .parquet")


def load(task: str, path: Path) -> tuple[list[Problem], Counter[str]]:
    """(the problems of a file of `task`'s rows, why other rows were skipped and how many).

    Names are `task/key`, the key being the data set's own name or number, else the row's index,
    with `#2` and so on after the second of the same name. Raises as `read_rows`, and KeyError for
    a task not in TASKS.
    """
    build, key = TASKS[task]
    problems: list[Problem] = []
    skipped: Counter[str] = Counter()
    names: Counter[str] = Counter()
    for index, row in enumerate(read_rows(path)):
        if not isinstance(row, dict):
            skipped["the line is not a JSON object"] += 1
            continue
        own = row.get(key) if key else None
        name = f"{task}/{index:05d}" if own is None else f"{task}/{own}"
        names[name] += 1
        if names[name] > 1:
            name = f"{name}#{names[name]}"
        try:
            problems.append(build(row, name))
        except SkipRow as reason:
            skipped[str(reason)] += 1
    return problems, skipped


# task → (how a row becomes a problem, the column that names it)
TASKS: dict[str, tuple[Callable[[Row, str], Problem], str | None]] = {
    "taco": (taco_problem, None),
    "code_contests": (code_contests_problem, "name"),
    "apps": (taco_problem, "problem_id"),
}


def _checker(statement: str, tests: tuple[Test, ...], fn_name: str | None) -> str:
    if why_needs_checker(statement, tests):
        return "needs_checker"
    return "call" if fn_name else comparing_checker(statement, tests)


def _code_contests_tests(row: Row, *columns: str) -> tuple[Test, ...]:
    tests: list[Test] = []
    for column in columns:
        held = row.get(column) or {}
        inputs, outputs = held.get("input") or [], held.get("output") or []
        if len(inputs) != len(outputs):
            raise SkipRow("inputs and outputs differ in number")
        tests.extend(map(Test, inputs, outputs))
    return tuple(dict.fromkeys(tests))


def _source(value: int | str) -> str:
    if isinstance(value, int) and 0 <= value < len(_CODE_CONTESTS_SOURCES):
        return _CODE_CONTESTS_SOURCES[value]
    return str(value)


def _duration(held: Any) -> float | None:
    """Seconds of {seconds, nanos}; None where unknown."""
    if not held:
        return None
    return (held.get("seconds") or 0) + (held.get("nanos") or 0) / 1e9 or None


def _python_3(held: Any) -> tuple[str, ...]:
    if not held:
        return ()
    pairs = zip(held.get("language") or (), held.get("solution") or (), strict=False)
    return tuple(program for language, program in pairs if language == _PYTHON_3)


def _json_line(line: str) -> Row | None:
    try:
        with fields.integers_of_any_length():
            return json.loads(line)
    except (ValueError, RecursionError):
        return None
