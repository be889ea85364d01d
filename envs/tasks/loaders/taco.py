"""TACO (BAAI/TACO; Li et al. 2023): JSON, Python lists and free text in string columns."""

from __future__ import annotations

from envs.problem import Problem
from envs.tasks.parsers import field_parsers
from envs.tasks.parsers.contest_fields import iso_date
from envs.tasks.parsers.field_parsers import Row, SkipRow
from envs.tasks.parsers.special_judge import checker_for


def problem(row: Row, name: str) -> Problem:
    """Convert a row of TACO or APPS, whose statements include their samples.

    The problem is call-based if the row names a function or has starter code. Raises SkipRow.
    """
    fields = field_parsers.load_json(row.get("input_output"), "input_output")
    if not isinstance(fields, dict):
        raise SkipRow("input_output is not an object")
    starter_code = row.get("starter_code") or ""
    fn_name = field_parsers.function_name(fields.get("fn_name"), starter_code)
    parse_tests = field_parsers.call_tests if fn_name else field_parsers.stdin_tests
    tests = parse_tests(fields.get("inputs"), fields.get("outputs"))
    statement = row.get("question") or ""
    return Problem(
        name=name,
        statement=statement,
        samples=(),
        tests=tests,
        checker=checker_for(statement, tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        time_limit_s=field_parsers.seconds(row.get("time_limit")),
        memory_limit_mb=field_parsers.megabytes(row.get("memory_limit")),
        difficulty=row.get("difficulty") or "",
        tags=field_parsers.tag_list(row.get("tags")),
        source=row.get("source") or "",
        date=iso_date(row.get("date")),
        solutions=field_parsers.programs(row.get("solutions"), "solutions"),
        incorrect_solutions=field_parsers.programs(
            row.get("incorrect_solutions"), "incorrect_solutions"
        ),
    )
