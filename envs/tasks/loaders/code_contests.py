"""CodeContests (deepmind/code_contests; Li et al. 2022): three kinds of tests, five languages."""

from __future__ import annotations

from typing import Any

from envs.problem import Problem, Test
from envs.tasks.parsers.contest_fields import rating
from envs.tasks.parsers.field_parsers import Row, SkipRow, named_by_row, plain_lines
from envs.tasks.parsers.special_judge import checker_for

_PYTHON_3 = 3  # the data set's code for the language
_SOURCES = (
    "UNKNOWN_SOURCE",
    "CODECHEF",
    "CODEFORCES",
    "HACKEREARTH",
    "CODEJAM",
    "ATCODER",
    "AIZU",
)


def problem(row: Row, name: str) -> Problem:
    """Convert a row, with all its tests and its Python 3 programs.

    Raises SkipRow, also for a problem that reads or writes files.
    """
    if row.get("input_file") not in (None, "", "stdin"):
        raise SkipRow("reads a file")
    if row.get("output_file") not in (None, "", "stdout"):
        raise SkipRow("writes a file")
    samples = _tests(row, "public_tests")
    handmade = dict.fromkeys(samples + _tests(row, "private_tests"))
    tests = tuple(handmade | dict.fromkeys(_tests(row, "generated_tests")))
    if not tests:
        raise SkipRow("no tests")
    statement = row.get("description") or ""
    source = row.get("source") or 0
    memory_bytes = row.get("memory_limit_bytes") or 0
    return Problem(
        name=named_by_row(name, row.get("name")),
        statement=statement,
        samples=samples,
        tests=tests,
        checker=checker_for(statement, tests, None),
        generated_tests=len(tests) - len(handmade),
        time_limit_s=_duration(row.get("time_limit")),
        memory_limit_mb=-(-memory_bytes // 2**20) or None,
        difficulty=str(row.get("difficulty") or ""),
        tags=tuple(tag for tag in row.get("cf_tags") or () if tag),
        source=_source(source),
        rating=rating(row.get("cf_rating")),
        solutions=_python_3(row.get("solutions")),
        incorrect_solutions=_python_3(row.get("incorrect_solutions")),
    )


def _tests(row: Row, column: str) -> tuple[Test, ...]:
    columns = row.get(column) or {}
    inputs, outputs = columns.get("input") or [], columns.get("output") or []
    if len(inputs) != len(outputs):
        raise SkipRow("inputs and outputs differ in number")
    return tuple(
        Test(plain_lines(text), output) for text, output in zip(inputs, outputs, strict=True)
    )


def _source(value: int | str) -> str:
    if isinstance(value, int) and 0 <= value < len(_SOURCES):
        return _SOURCES[value]
    return str(value)


def _duration(time: Any) -> float | None:
    """Return the seconds of {seconds, nanos}, or None if unknown."""
    if not time:
        return None
    return (time.get("seconds") or 0) + (time.get("nanos") or 0) / 1e9 or None


def _python_3(programs: Any) -> tuple[str, ...]:
    if not programs:
        return ()
    pairs = zip(programs.get("language") or (), programs.get("solution") or (), strict=False)
    return tuple(program for language, program in pairs if language == _PYTHON_3)
