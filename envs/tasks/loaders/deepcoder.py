"""DeepCoder's training data (agentica-org/DeepCoder-Preview-Dataset): four configurations.

Columns: problem, tests (JSON), and by configuration solutions, starter_code, metadata. The tests
are nested differently, and their shape tells which configuration a row belongs to:

    taco                 {"inputs": [...], "outputs": [...], optional "fn_name"}
    primeintellect       [{"type": "stdin_stdout" | "function_call", "input", "output", "fn_name"}]
    lcbv5, codeforces    [{"testtype": "functional" | "stdin", "input", "output"}], with the
                         function's name in metadata

Programs of primeintellect stand in Markdown fences. Read: the hub's listing and card, and the
readers of rllm and tinker-cookbook (not the rows themselves).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.problem import Problem, Test
from envs.tasks.parsers import field_parsers
from envs.tasks.parsers.contest_fields import fenced_programs, tests_of
from envs.tasks.parsers.field_parsers import Row, SkipRow
from envs.tasks.parsers.special_judge import checker_for


def problem(row: Row, name: str) -> Problem:
    """Convert a row of any configuration. Raises SkipRow."""
    statement, starter_code = row.get("problem"), row.get("starter_code") or ""
    if not isinstance(statement, str):
        raise SkipRow("problem is not a text")
    fn_name, tests = _tests(row, starter_code)
    return Problem(
        name=name,
        statement=statement,
        samples=(),  # statements include them
        tests=tests,
        checker=checker_for(statement, tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        solutions=fenced_programs(field_parsers.programs(row.get("solutions"), "solutions")),
    )


def _tests(row: Row, starter_code: str) -> tuple[str | None, tuple[Test, ...]]:
    """Return (the function to call or None, tests)."""
    tests: Any = field_parsers.load_json(row.get("tests"), "tests")
    if not isinstance(tests, Mapping):
        return tests_of(tests, row.get("metadata"), starter_code)
    fn_name = field_parsers.function_name(tests.get("fn_name"), starter_code)
    parse_tests = field_parsers.call_tests if fn_name else field_parsers.stdin_tests
    return fn_name, parse_tests(tests.get("inputs"), tests.get("outputs"))
