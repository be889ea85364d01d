"""HumanEval and MBPP: assertions become call tests, or their problem is left out and counted."""

import ast
import json

import pytest

from envs.extract import as_response
from envs.judge import Judge, Submission
from envs.problem import Test, Verdict
from envs.sandbox.select import SandboxConfig, open_sandbox
from envs.tasks import open_task
from envs.tasks.asserts import call_tests, called
from envs.tasks.fields import SkipRow
from envs.tasks.humaneval import humaneval_problem
from envs.tasks.mbpp import mbpp_problem
from tests.envs.tasks.test_contests import config, write

CLOSEST = {
    "task_id": "HumanEval/900",
    "prompt": (
        "from typing import List\n\n\ndef gap(numbers: List[float]) -> float:\n"
        '    """The least difference of two of the numbers.\n    >>> gap([1.0, 4.5, 3.0])\n'
        '    1.5\n    """\n'
    ),
    "canonical_solution": (
        "    found = sorted(numbers)\n    return min(b - a for a, b in zip(found, found[1:]))\n"
    ),
    "test": (
        "METADATA = {'author': 'x'}\n\n\ndef check(candidate):\n"
        "    assert candidate([1.0, 4.5, 3.0]) == 1.5\n"
        "    assert abs(candidate([0.1, 0.3, 9.0]) - 0.2) < 1e-6\n"
        "    assert True, 'reached'\n"
    ),
    "entry_point": "gap",
}
EVEN = {
    "task_id": "HumanEval/901",
    "prompt": 'def even(n):\n    """Whether n is even."""\n',
    "canonical_solution": "    return n % 2 == 0\n",
    "test": "def check(candidate):\n    assert candidate(4)\n    assert not candidate(-3)\n"
    "    assert candidate(0) is True, 'zero'\n",
    "entry_point": "even",
}
LOOPED = EVEN | {
    "task_id": "HumanEval/902",
    "test": "def check(candidate):\n    for n in range(9):\n        assert candidate(2 * n)\n",
}
COUNTS = {
    "task_id": 900,
    "text": "Write a function to count each word of a sentence.",
    "code": "def counts(s):\r\n  found = {}\r\n  for w in s.split():\r\n"
    "    found[w] = found.get(w, 0) + 1\r\n  return found",
    "test_list": ["assert counts('a b a') == {'a': 2, 'b': 1}", "assert counts('') == {}"],
    "test_setup_code": "",
    "challenge_test_list": ["assert counts('z z z')=={'z': 3}"],
}
PAIR = {
    "task_id": 901,
    "prompt": "Write a function that returns the least and the greatest item.",
    "code": "def ends(items):\n    return min(items), max(items)",
    "test_list": ["assert ends([3, 1, 2]) == (1, 3)", "assert ends([-5]) == (-5, -5)"],
    "test_imports": [],
}
ROWS = {"humaneval": [CLOSEST, EVEN, LOOPED], "mbpp": [COUNTS, PAIR]}
WRONG = {
    "gap": "def gap(numbers):\n    return 1.5",
    "even": "def even(n):\n    return True",
    "counts": "def counts(s):\n    return {w: 1 for w in s.split()}",
    "ends": "def ends(items):\n    return items[0], items[-1]",
}


def converted(code):
    return call_tests(ast.parse(code).body, "f")


@pytest.mark.parametrize(
    ("assertion", "arguments", "value"),
    [
        ("f(1, 'a') == [1, None]", [1, "a"], [1, None]),
        ("3 == f(-2)", [-2], 3),
        ("f([]) is None", [[]], None),
        ("f({'a': [1]})", [{"a": [1]}], True),
        ("not f()", [], False),
        ("f(2) == (1, (2, 3))", [2], [1, [2, 3]]),
        ("abs(f(2) - 1) <= 1e-6", [2], 1.0),
        ("math.isclose(f(2), 0.5)", [2], 0.5),
        ("f(10 * 10 + 1) == 2 - 5", [101], -3),
        ("f(1) == 2, 'why'", [1], 2),
    ],
)
def test_an_assertion_is_a_call_and_its_value(assertion, arguments, value):
    assert converted(f"assert {assertion}") == (Test(json.dumps(arguments), json.dumps(value)),)


@pytest.mark.parametrize(
    "code",
    [
        "assert f((1, 2)) == 3",  # an argument would be a list
        "assert f({1, 2}) == 3",
        "assert f(1) == {1, 2}",
        "assert f({1: 2}) == 3",
        "assert set(f(1)) == {1}",
        "assert sorted(f(1)) == [1]",
        "assert f(1) != 2",
        "assert 0 < f(1) < 2",
        "assert g(1) == 2",
        "assert f(x=1) == 2",
        "assert f(y) == 2",
        "assert f(9 ** 9 ** 9) == 2",
        "assert f('a' * 10 ** 9) == 2",
        "assert f(1) == f(2)",
        "assert abs(f(1) - 2.0) < 0.5",
        "for i in range(3): assert f(i)",
        "x = 1\nassert f(1) == 2",
        "assert True",
        "",
    ],
)
def test_what_says_more_leaves_the_problem_out(code):
    with pytest.raises(SkipRow):
        converted(f"assert f(1) == 1\n{code}" if code not in ("", "assert True") else code)


def test_the_function_is_the_one_that_is_called():
    assert called("assert set(similar((1, 2))) == set((3,))") == "similar"
    assert called("assert 1 == 1") is None


def test_columns():
    gap = humaneval_problem(CLOSEST, "humaneval/900")
    assert (gap.fn_name, gap.checker, len(gap.tests)) == ("gap", "call", 2)
    assert "The least difference" in gap.statement
    counts = mbpp_problem(COUNTS, "mbpp/900")
    assert (counts.fn_name, len(counts.tests)) == ("counts", 3)
    assert "count each word" in counts.statement and "counts('a b a')" in counts.statement
    assert "z z z" not in counts.statement
    with pytest.raises(SkipRow, match="set-up"):
        mbpp_problem(COUNTS | {"test_setup_code": "import x"}, "p")
    with pytest.raises(SkipRow, match="no function `check`"):
        humaneval_problem(CLOSEST | {"test": "assert gap([1.0, 2.0]) == 1"}, "p")


@pytest.mark.parametrize("name", list(ROWS))
def test_right_programs_pass_and_wrong_ones_fail(name, tmp_path):
    task = open_task(config(name, write(tmp_path / "rows.jsonl", ROWS[name])))
    problems = [*task.train, *task.validation, *task.test]
    assert len(problems) == 2 and task.rows_read == len(ROWS[name])
    assert task.left_out.total() == len(ROWS[name]) - 2
    for problem in problems:
        assert problem.fn_name in task.prompt(problem)
    with open_sandbox(SandboxConfig(kind="embedded", workers=1)) as sandbox:
        judge = Judge(sandbox)
        right = judge.judge([Submission(p, task.response(p.solutions[0])) for p in problems])
        wrong = judge.judge([Submission(p, as_response(WRONG[p.fn_name])) for p in problems])
    assert [j.verdict for j in right] == [Verdict.ACCEPTED] * 2
    assert [j.verdict for j in wrong] == [Verdict.WRONG_ANSWER] * 2
