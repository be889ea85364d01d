"""CodeContests+ (ByteDance-Seed/Code-Contests-Plus; Wang et al. 2025): tests of generators that a
model wrote, and a testlib checker for each problem.

Configuration `1x`, the smallest with tests: 46 GB, streamed. Of a problem are kept the first tests
up to MAX_TEST_BYTES each, and up to LARGE_TESTS larger ones. The time limit is in milliseconds, the
memory limit in megabytes. Read: the hub's listing, the card, and public code that reads the rows
(not the rows themselves).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from envs.problem import CheckerProgram, Problem, Test
from envs.tasks.parsers.field_parsers import Row, SkipRow, named_by_row, stdin_tests
from envs.tasks.parsers.special_judge import checker_for

MAX_TEST_BYTES = 256 * 2**10  # of input and output together
LARGE_TESTS = 2  # tests of a problem that may be larger: without them slow programs would pass
MAX_LARGE_BYTES = 4 * 2**20
MAX_PROGRAMS = 40  # of each kind, of more than a thousand
_PYTHON_3 = ("py3", "python3", "pypy3")


def problem(row: Row, name: str) -> Problem:
    """Convert a row, with its checker, capped tests and Python 3 programs. Raises SkipRow."""
    items = row.get("test_cases") or []
    if not items:
        raise SkipRow("no tests")
    tests = tuple(
        _capped(stdin_tests([item["input"] for item in items], [item["output"] for item in items]))
    )
    if not tests:
        raise SkipRow("all tests are too large")
    statement, source = row.get("description") or "", row.get("checker")
    checker = CheckerProgram("testlib", source) if source else None
    return Problem(
        name=named_by_row(name, row.get("id")),
        statement=statement,
        samples=(),  # statements include them
        tests=tests,
        checker="program" if checker else checker_for(statement, tests, None),
        generated_tests=len(tests),
        time_limit_s=(row.get("time_limit") or 0) / 1000 or None,
        memory_limit_mb=row.get("memory_limit") or None,
        source=row.get("source") or "",
        solutions=_python_3(row.get("correct_submissions")),
        incorrect_solutions=_python_3(row.get("incorrect_submissions")),
        checker_program=checker,
    )


def _capped(tests: Iterable[Test]) -> Iterator[Test]:
    """Yield the tests that are small enough, and the first of the larger ones."""
    large = 0
    for test in tests:
        size = len(test.input.encode()) + len(test.output.encode())
        if size > MAX_TEST_BYTES:
            if size > MAX_LARGE_BYTES or large == LARGE_TESTS:
                continue
            large += 1
        yield test


def _python_3(submissions: Any) -> tuple[str, ...]:
    programs = (item["code"] for item in submissions or () if item["language"].lower() in _PYTHON_3)
    return tuple(dict.fromkeys(programs))[:MAX_PROGRAMS]
