"""HumanEval and MBPP: asserts become calls and conditions; rows from a file to real verdicts.

`data/functions.yaml` holds rows, wrong programs and asserts.
"""

import json
from pathlib import Path

import pytest
import yaml

from envs.judge.checkers import parse_condition
from envs.judge.extract import as_response
from envs.judge.judge import Judge, Submission
from envs.problem import Test, Verdict
from envs.sandbox import SandboxConfig, open_sandbox
from envs.tasks.loaders.functions import mbpp
from envs.tasks.parsers import SkipRow
from tests.envs.tasks.dataset_rows import load_problems

ROWS = yaml.safe_load((Path(__file__).parent / "data" / "functions.yaml").read_text("utf-8"))
LARGE = ("assert f(1) == -(16 ** 3000)", "[1]", "result == -0x1" + "0" * 3000)
SKIPPED = [(code, reason) for reason, codes in ROWS["skipped"].items() for code in codes]
SKIPPED.append(("assert f(" + "(" * 5000 + ")" * 5000 + ") == 1", "test_list is not Python"))


@pytest.fixture
def load_rows(tmp_path):
    def read(schema, rows):
        file = tmp_path / f"{schema}.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)))
        return load_problems(schema, file)

    return read


def test_own_solutions_are_accepted_and_near_misses_rejected(load_rows):
    problems = load_rows("humaneval", ROWS["humaneval"])[0] + load_rows("mbpp", ROWS["mbpp"])[0]
    assert {problem.name for problem in problems} == set(ROWS["wrong"])
    with open_sandbox(SandboxConfig(kind="embedded", workers=1)) as sandbox:
        for programs, expected in (
            ({p.name: p.solutions[0] for p in problems}, True),
            (ROWS["wrong"], False),
        ):
            asked = [Submission(p, as_response(programs[p.name])) for p in problems]
            found = dict(zip(programs, Judge(sandbox).judge(asked), strict=True))
            odd = {n: j for n, j in found.items() if (j.verdict is Verdict.ACCEPTED) != expected}
            assert not odd


# Asserts.


def read(code):
    """(Function, tests) of asserts, as MBPP has them."""
    found = mbpp({"test_list": [code], "text": "Call it."}, "p")
    return found.fn_name, found.tests


@pytest.mark.parametrize(("code", "arguments", "condition"), [*ROWS["asserts"], LARGE])
def test_an_assert_is_a_call_and_a_condition_on_its_result(code, arguments, condition):
    assert read(code) == ("f", (Test(arguments, condition),))
    assert parse_condition(condition).text() == condition


def test_what_tests_nothing_is_passed_over_and_what_is_said_twice_counts_once():
    code = "'why'\nimport math\nassert True, 'fine'\nassert f(1) == 1\npass\nassert 1 == f(1)\n"
    assert read(code) == ("f", (Test("[1]", "result == 1"),))


@pytest.mark.parametrize(("code", "reason"), SKIPPED)
def test_what_a_call_test_cannot_hold_skips_the_problem(code, reason):
    with pytest.raises(SkipRow) as skipped:
        read(f"assert f(0) == 0\n{code}" if code != "assert True" else code)
    assert str(skipped.value) == reason
