"""TACO (BAAI/TACO; Li et al. 2023): JSON, Python lists and free text inside columns of text."""

from __future__ import annotations

from envs.problem import Problem
from envs.tasks import fields
from envs.tasks.fields import Row, SkipRow
from envs.tasks.special_judge import checker_for


def problem(row: Row, name: str) -> Problem:
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
        checker=checker_for(statement, tests, fn_name),
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
