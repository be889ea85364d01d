"""HumanEval (openai/openai_humaneval; Chen et al. 2021): complete a function from its docstring."""

from __future__ import annotations

import ast

from envs.problem import Problem, Test
from envs.tasks.parsers.asserts import asserted_tests, parse
from envs.tasks.parsers.field_parsers import Row, SkipRow, named_by_row


def problem(row: Row, name: str) -> Problem:
    """Convert a row. Its prompt, a function without a body, is both statement and starter code.

    The right program is the prompt followed by the canonical solution. Raises SkipRow.
    """
    prompt, fn_name = row.get("prompt"), row.get("entry_point")
    if not isinstance(prompt, str) or not isinstance(fn_name, str):
        raise SkipRow("prompt or entry_point is not a text")
    tests = _tests(row)
    solution = row.get("canonical_solution")
    return Problem(
        name=named_by_row(name, row.get("task_id")),
        statement=prompt,
        samples=(),
        tests=tests,
        checker="assert",
        fn_name=fn_name,
        starter_code=prompt,
        source="HumanEval",
        solutions=(prompt + solution,) if isinstance(solution, str) else (),
    )


def _tests(row: Row) -> tuple[Test, ...]:
    """Return the tests of `check(candidate)`, the only function in the column `test`."""
    statements = [
        node for node in parse(row.get("test"), "test") if not isinstance(node, ast.Assign)
    ]
    match statements:
        case [ast.FunctionDef(name="check", args=ast.arguments(args=[parameter]), body=body)]:
            called, tests = asserted_tests(body)
            if called == parameter.arg:
                return tests
    raise SkipRow("test is not one function check(candidate) with asserts about it")
