"""CodeContests (three kinds of tests, five languages) and CodeContests+.

CodeContests is deepmind/code_contests (Li et al. 2022).

CodeContests+ is ByteDance-Seed/Code-Contests-Plus (Wang et al. 2025): tests of generators that a
model wrote, and a testlib checker for each problem. Configuration `1x` is the smallest with tests:
46 GB, streamed. Of a problem are kept the first tests up to MAX_TEST_BYTES each, and up to
LARGE_TESTS larger ones. Read: the hub's listing, the card, and public code that reads the rows (not
the rows themselves).
"""

from __future__ import annotations

from typing import Any

from envs.problem import CheckerProgram, Problem, Test
from envs.tasks.checker_rules import checker_for
from envs.tasks.parsers import Row, SkipRow, named_by_row, plain_lines, rating, stdin_tests

MAX_TEST_BYTES = 256 * 2**10  # of a test of CodeContests+, input and output together
LARGE_TESTS = 2  # tests of a problem that may be larger: without them slow programs would pass
MAX_LARGE_BYTES = 4 * 2**20
MAX_PROGRAMS = 40  # of each kind, of more than a thousand
_PYTHON_3 = 3  # CodeContests' code for the language
_PYTHON_3_NAMES = ("py3", "python3", "pypy3")  # of CodeContests+
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
    memory_bytes, time = row.get("memory_limit_bytes") or 0, row.get("time_limit") or {}
    source = row.get("source") or 0
    if isinstance(source, int) and 0 <= source < len(_SOURCES):
        source = _SOURCES[source]
    return Problem(
        name=named_by_row(name, row.get("name")),
        statement=statement,
        samples=samples,
        tests=tests,
        checker=checker_for(statement, tests, None),
        generated_tests=len(tests) - len(handmade),
        time_limit_s=(time.get("seconds") or 0) + (time.get("nanos") or 0) / 1e9 or None,
        memory_limit_mb=-(-memory_bytes // 2**20) or None,
        difficulty=str(row.get("difficulty") or ""),
        tags=tuple(tag for tag in row.get("cf_tags") or () if tag),
        source=str(source),
        rating=rating(row.get("cf_rating")),
        solutions=_programs(row.get("solutions")),
        incorrect_solutions=_programs(row.get("incorrect_solutions")),
    )


def _tests(row: Row, column: str) -> tuple[Test, ...]:
    columns = row.get(column) or {}
    inputs, outputs = columns.get("input") or [], columns.get("output") or []
    if len(inputs) != len(outputs):
        raise SkipRow("inputs and outputs differ in number")
    return tuple(
        Test(plain_lines(text), output) for text, output in zip(inputs, outputs, strict=True)
    )


def _programs(programs: Any) -> tuple[str, ...]:
    if not programs:
        return ()
    pairs = zip(programs.get("language") or (), programs.get("solution") or (), strict=False)
    return tuple(program for language, program in pairs if language == _PYTHON_3)


def codecontests_plus(row: Row, name: str) -> Problem:
    """Convert a row of CodeContests+, with its checker, capped tests and Python 3 programs.

    Its time limit is in milliseconds, its memory limit in megabytes. Raises SkipRow.
    """
    items = row.get("test_cases") or []
    if not items:
        raise SkipRow("no tests")
    tests = _capped(stdin_tests([i["input"] for i in items], [i["output"] for i in items]))
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
        solutions=_submissions(row.get("correct_submissions")),
        incorrect_solutions=_submissions(row.get("incorrect_submissions")),
        checker_program=checker,
    )


def _capped(tests: tuple[Test, ...]) -> tuple[Test, ...]:
    """Return the tests that are small enough, and the first of the larger ones."""
    kept, large = [], 0
    for test in tests:
        size = len(test.input.encode()) + len(test.output.encode())
        if size <= MAX_TEST_BYTES:
            kept.append(test)
        elif size <= MAX_LARGE_BYTES and large < LARGE_TESTS:
            kept.append(test)
            large += 1
    return tuple(kept)


def _submissions(submissions: Any) -> tuple[str, ...]:
    programs = (
        item["code"] for item in submissions or () if item["language"].lower() in _PYTHON_3_NAMES
    )
    return tuple(dict.fromkeys(programs))[:MAX_PROGRAMS]
