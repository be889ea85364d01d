"""A program's budget over all its tests, which no right program comes near."""

from dataclasses import replace

import pytest

from envs.judge.checker_program import PROGRAM
from envs.judge.grading import Budget, Grade
from envs.judge.judge import Judge, JudgeConfig, Submission
from envs.problem import CheckerProgram, Problem, Test, Verdict
from envs.sandbox.base import Execution, Outcome, Sandbox

LIMIT_S = 2.0
CONFIG = {"time_factor": 1.0, "time_margin": 0.0, "wall_factor": 3.0, "budget_factor": 3.0}
OK, LATE, WRONG = (
    Grade(verdict) for verdict in (Verdict.ACCEPTED, Verdict.TIME_LIMIT, Verdict.WRONG_ANSWER)
)


class Scripted(Sandbox):
    """Ends each test as `execution` says, by its number."""

    name = strength = "scripted"

    def __init__(self, execution):
        self.execution, self.ran = execution, 0

    def run(self, jobs, keep_going):
        for index, job in enumerate(jobs):
            executions = []
            for position in range(len(job.inputs)):
                self.ran += 1
                executions.append(self.execution(position))
                if not keep_going(index, position, executions[-1]):
                    break
            yield index, executions

    def close(self):
        pass


def judged(execution, tests=200, checker="tokens", **config):
    sandbox = Scripted(execution)
    judge = Judge(sandbox, JudgeConfig(**CONFIG | config))
    problem = Problem(
        "p",
        "",
        (),
        (Test("", "7"),) * tests,
        checker,
        time_limit_s=LIMIT_S,
        checker_program=CheckerProgram("python", "print(1)"),
    )
    [judgement] = judge.judge([Submission(problem, "print(7)")])
    return judgement, sandbox.ran


@pytest.mark.parametrize(
    ("grade", "times", "ended"),
    [
        (OK, [(0.9, 0.0)] * 200, None),
        (WRONG, [(0.9, 0.0)] * 200, None),
        (OK, [(0.0, 0.9)] * 4, 3),
        (WRONG, [(0.0, 0.9)] * 4, 3),
        (LATE, [(1.2, 0.0)] * 3, 2),
        (LATE, [(0.0, 1.0)] * 3, None),
        (LATE, [(0.0, 1.0)] * 4, 3),
    ],
)
def test_what_uses_it_up(grade, times, ended):
    budget = Budget(cpu_s=3.0, idle_s=3.0)
    charged = [budget.charge(grade, *time) for time in times]
    assert [bool(one.ended) for one in charged] == [at == ended for at in range(len(times))]
    assert budget.fresh() == Budget(3.0, 3.0)


def test_a_right_program_with_many_slow_tests_is_accepted():
    judgement, ran = judged(lambda _: Execution(Outcome.FINISHED, b"7", cpu_s=0.9 * LIMIT_S))
    assert (judgement.verdict, judgement.passed, ran) == (Verdict.ACCEPTED, 200, 200)


# A checker program is not asked about the expected output.
@pytest.mark.parametrize("checker", ["tokens", PROGRAM])
@pytest.mark.parametrize("early_stop", [True, False])
def test_a_program_that_sleeps_in_each_test_is_ended_by_its_budget(early_stop, checker):
    napping = Execution(Outcome.FINISHED, b"7", wall_s=5.0, idle_s=5.0)  # wall limit 6 s
    judgement, ran = judged(lambda _: replace(napping), checker=checker, early_stop=early_stop)
    assert (judgement.verdict, judgement.passed, judgement.run, ran) == ("TIME_LIMIT", 3, 4, 4)
    assert judgement.detail == "test 3: waited 20.0 s in all (budget 18 s)"
    assert judgement.by_wall_time


def test_the_budget_is_a_setting():
    _, ran = judged(
        lambda _: Execution(Outcome.FINISHED, b"7", wall_s=5.0, idle_s=5.0), budget_factor=10.0
    )
    assert ran == 13


@pytest.mark.parametrize("checker", ["tokens", PROGRAM])
@pytest.mark.parametrize(("passed_first", "ran"), [(0, 3), (5, 8)])
def test_judging_all_tests_ends_with_the_time_outs_that_a_budget_allows(passed_first, ran, checker):
    def execution(position):
        if position < passed_first:
            return Execution(Outcome.FINISHED, b"7", cpu_s=1.9)
        return Execution(Outcome.TIME_LIMIT, cpu_s=2.1, wall_s=2.2)

    judgement, run = judged(execution, checker=checker, early_stop=False)
    assert (judgement.verdict, judgement.passed, run) == ("TIME_LIMIT", passed_first, ran)
    assert judgement.detail.endswith("; time-outs took 6.3 s CPU (budget 6 s)")
    assert not judgement.by_wall_time
