"""Which programs begin with a process for their first test alone, and that no verdict rests on it.

Attacks and honest programs go both ways in `sandbox/test_attacks.py` and `test_honest.py`.
"""

from dataclasses import replace

import pytest

from envs.judge.judge import Judge, JudgeConfig
from envs.problem import Problem, Submission, Test, Verdict
from tests.envs.sandboxes import PATHS, OnPath

TESTS = tuple(Test(f"{n}\n", f"{n * n}\n") for n in (1, 2, -3))
SQUARE = Problem("square", "", (), TESTS, time_limit_s=1.0)
RIGHT = "n = int(input())\nprint(n * n)"
FAILS_FIRST, FAILS_LAST = f"{RIGHT}\n1 / 0", "n = int(input())\nprint(n * abs(n))"
VERDICTS = {
    RIGHT: Verdict.ACCEPTED,
    FAILS_LAST: Verdict.WRONG_ANSWER,
    FAILS_FIRST: Verdict.RUNTIME_ERROR,
    "print((": Verdict.SYNTAX_ERROR,
    "x = [0] * 10**9": Verdict.MEMORY_LIMIT,
    "while True: print('x' * 10**6)": Verdict.OUTPUT_LIMIT,
    f"import sys\n{RIGHT}\nsys.exit(n == -3)": Verdict.RUNTIME_ERROR,
}


class Programs:
    """Programs that a judge has not seen yet, and how many of a call began as one-shot."""

    def __init__(self, sandbox, judge):
        self.sandbox, self.judge, self.made = sandbox, judge, 0

    def one_shots(self, *programs, problem=SQUARE):
        texts = [f"```python\n{p}\n# {self.made + n}\n```" for n, p in enumerate(programs)]
        self.made, before = self.made + len(texts), self.sandbox.one_shots
        self.judge.judge([Submission(problem, text) for text in texts])
        return self.sandbox.one_shots - before


@pytest.fixture
def programs(real_sandbox):
    return Programs(real_sandbox, Judge(real_sandbox))


def test_what_will_likely_pass_its_first_test_has_no_process_for_it_alone(programs):
    assert programs.one_shots(RIGHT, RIGHT) == 2  # what a call learns comes later
    assert programs.one_shots(RIGHT, FAILS_FIRST) == 0
    assert programs.one_shots(RIGHT, RIGHT) == 2  # three of four have passed
    assert programs.one_shots(RIGHT, RIGHT) == 0  # five of six
    assert programs.one_shots(RIGHT, problem=replace(SQUARE, name="another", tests=TESTS[1:])) == 1


def test_where_all_tests_run_none_has_a_process_of_its_own(real_sandbox):
    programs = Programs(real_sandbox, Judge(real_sandbox, JudgeConfig(early_stop=False)))
    assert programs.one_shots(FAILS_FIRST, RIGHT) == 0
    assert programs.one_shots(RIGHT, problem=replace(SQUARE, tests=TESTS[:1])) == 1


@pytest.mark.parametrize("early_stop", [True, False])
def test_verdicts_and_counters_are_the_same_on_both_ways(real_sandbox, early_stop):
    found = []
    for path in PATHS:
        judge = Judge(OnPath(real_sandbox, path), JudgeConfig(early_stop=early_stop))
        judged = judge.judge([Submission(SQUARE, f"```python\n{p}\n```") for p in VERDICTS])
        assert [j.verdict for j in judged] == list(VERDICTS.values()), path
        stats = replace(judge.stats, cpu_s=0.0, judged_again=0)
        found.append(([(j.passed, j.run, j.total) for j in judged], stats))
    assert found[0] == found[1]
