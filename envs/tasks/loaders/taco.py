"""TACO and data sets of its kind: JSON, Python lists and free text in string columns.

TACO is BAAI/TACO (Li et al. 2023), APPS is codeparrot/apps (Hendrycks et al. 2021). TACO-verified
(likaixin/TACO-verified) has problems of TACO's training split with solutions that its author ran
against the tests; there `solutions` is a list, and `id` numbers the rows.

DeepCoder's training data (agentica-org/DeepCoder-Preview-Dataset) has four configurations. Their
columns are problem, tests (JSON), and by configuration solutions, starter_code, metadata. The shape
of the tests tells which configuration a row belongs to:

    taco                 {"inputs": [...], "outputs": [...], optional "fn_name"}
    primeintellect       [{"type": "stdin_stdout" | "function_call", "input", "output", "fn_name"}]
    lcbv5, codeforces    [{"testtype": "functional" | "stdin", "input", "output"}], with the
                         function's name in metadata

Programs of primeintellect stand in Markdown fences. Of TACO-verified and DeepCoder were read: the
hub's listing, the card and public code that reads the rows (not the rows themselves).
"""

from __future__ import annotations

from collections.abc import Mapping

from envs.problem import Problem, Test
from envs.tasks import parsers
from envs.tasks.checker_rules import checker_for
from envs.tasks.parsers import Row, SkipRow, named_by_row


def problem(row: Row, name: str) -> Problem:
    """Convert a row of TACO or APPS, whose statements include their samples.

    The problem is call-based if the row names a function or has starter code. Raises SkipRow.
    """
    fields = parsers.load_json(row.get("input_output"), "input_output")
    if not isinstance(fields, dict):
        raise SkipRow("input_output is not an object")
    starter_code = row.get("starter_code") or ""
    fn_name, tests = _tests(fields, starter_code)
    statement = row.get("question") or ""
    return Problem(
        name=name,
        statement=statement,
        samples=(),
        tests=tests,
        checker=checker_for(statement, tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        time_limit_s=parsers.seconds(row.get("time_limit")),
        memory_limit_mb=parsers.megabytes(row.get("memory_limit")),
        difficulty=row.get("difficulty") or "",
        tags=parsers.tag_list(row.get("tags")),
        source=row.get("source") or "",
        date=parsers.iso_date(row.get("date")),
        solutions=parsers.programs(row.get("solutions"), "solutions"),
        incorrect_solutions=parsers.programs(row.get("incorrect_solutions"), "incorrect_solutions"),
    )


def apps(row: Row, name: str) -> Problem:
    """Convert a row of APPS, named by its problem_id. Raises SkipRow."""
    return problem(row, named_by_row(name, row.get("problem_id")))


def taco_verified(row: Row, name: str) -> Problem:
    """Convert a row of TACO-verified, named by its id. Raises SkipRow."""
    return problem(row, named_by_row(name, row.get("id")))


def deepcoder(row: Row, name: str) -> Problem:
    """Convert a row of any configuration of DeepCoder. Raises SkipRow."""
    statement, starter_code = row.get("problem"), row.get("starter_code") or ""
    if not isinstance(statement, str):
        raise SkipRow("problem is not a text")
    fields = parsers.load_json(row.get("tests"), "tests")
    if isinstance(fields, Mapping):
        fn_name, tests = _tests(fields, starter_code)
    else:
        fn_name, tests = parsers.tests_of(fields, row.get("metadata"), starter_code)
    solutions = parsers.programs(row.get("solutions"), "solutions")
    return Problem(
        name=name,
        statement=statement,
        samples=(),  # statements include them
        tests=tests,
        checker=checker_for(statement, tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        solutions=parsers.fenced_programs(solutions),
    )


def _tests(fields: Mapping, starter_code: str) -> tuple[str | None, tuple[Test, ...]]:
    """Return (the function to call or None, tests)."""
    fn_name = parsers.function_name(fields.get("fn_name"), starter_code)
    parse_tests = parsers.call_tests if fn_name else parsers.stdin_tests
    return fn_name, parse_tests(fields.get("inputs"), fields.get("outputs"))
