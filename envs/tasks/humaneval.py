"""HumanEval (Chen et al. 2021, arXiv 2107.03374): functions to complete, tested by assertions.

Columns: task_id, prompt, canonical_solution, test, entry_point.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from envs.problem import Problem
from envs.tasks.asserts import call_tests, parsed
from envs.tasks.fields import SkipRow


def humaneval_problem(row: Mapping[str, Any], name: str) -> Problem:
    """A call-based problem; the prompt's code is the statement. Raises SkipRow."""
    prompt, test = row.get("prompt") or "", row.get("test") or ""
    functions = [node for node in parsed(test).body if isinstance(node, ast.FunctionDef)]
    check = next((node for node in functions if node.name == "check"), None)
    if check is None:
        raise SkipRow("no function `check`")
    return Problem(
        name=name,
        statement=f"Complete this function.\n\n```python\n{prompt.strip()}\n```",
        samples=(),
        tests=call_tests(check.body, check.args.args[0].arg),
        checker="call",
        fn_name=row.get("entry_point"),
        solutions=(prompt + row["canonical_solution"],) if row.get("canonical_solution") else (),
    )
