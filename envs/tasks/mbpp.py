"""MBPP (Austin et al. 2021, arXiv 2108.07732): a sentence, a function, three assertions.

Columns of the full set: task_id, text, code, test_list, test_setup_code, challenge_test_list; of
the sanitized one: prompt instead of text, test_imports instead of test_setup_code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.problem import Problem
from envs.tasks.asserts import call_tests, called, parsed
from envs.tasks.fields import SkipRow


def mbpp_problem(row: Mapping[str, Any], name: str) -> Problem:
    """A call-based problem. As usual the first assertion is shown, or no name could be known."""
    assertions = [*(row.get("test_list") or ()), *(row.get("challenge_test_list") or ())]
    if not assertions:
        raise SkipRow("no tests")
    if row.get("test_setup_code"):
        raise SkipRow("the tests need set-up code")
    function = called(assertions[0])
    if function is None:
        raise SkipRow("a test is not a plain assertion")
    statements = [statement for text in assertions for statement in parsed(text).body]
    text = row.get("text") or row.get("prompt") or ""
    shown = f"\n\nFor example:\n```python\n{assertions[0].strip()}\n```"
    return Problem(
        name=name,
        statement=text.strip() + shown if text.strip() else "",
        samples=(),
        tests=call_tests(statements, function),
        checker="call",
        fn_name=function,
        solutions=(row["code"],) if row.get("code") else (),
    )
