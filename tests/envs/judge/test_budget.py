"""A program's budget over all its tests, and verdicts that wall time decided."""

from dataclasses import replace

import pytest

from envs.judge.checker_program import PROGRAM
from envs.judge.judge import Judge, JudgeConfig, Submission
from envs.judge.verdict_cache import VerdictLog
from envs.problem import CheckerProgram, Judgement, Problem, Test, Verdict
from envs.sandbox.base import Execution, Outcome, Sandbox

LIMIT_S = 2.0
CONFIG = {"time_factor": 1.0, "time_margin": 0.0, "wall_factor": 3.0, "budget_factor": 3.0}


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


# A checker program is not asked about the expected output.
@pytest.mark.parametrize("checker", ["tokens", PROGRAM])
@pytest.mark.parametrize("early_stop", [True, False])
def test_a_program_that_sleeps_in_each_test_is_ended_by_its_budget(early_stop, checker):
    napping = Execution(Outcome.FINISHED, b"7", wall_s=5.0, idle_s=5.0)  # wall limit 6 s
    judgement, ran = judged(lambda _: replace(napping), checker=checker, early_stop=early_stop)
    assert (judgement.verdict, judgement.passed, judgement.run, ran) == ("TIME_LIMIT", 3, 4, 4)
    assert judgement.detail == "test 3: waited 20.0 s in all (budget 18 s)"
    assert judgement.by_wall_time


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


PRINTED, DECIDED = Execution(Outcome.FINISHED, b"8"), Execution(Outcome.FINISHED, b"1")
KILLED = Execution(Outcome.RUNTIME_ERROR, exit_code=-9, killed=True)


@pytest.mark.parametrize(
    ("checked", "verdict"), [([DECIDED], "ACCEPTED"), ([KILLED, DECIDED], "WRONG_ANSWER")]
)
def test_a_checker_that_is_killed_has_a_second_run(checked, verdict):
    """Killed again, it is the output's fault if it decides on the expected one."""
    ends = iter([PRINTED, KILLED, PRINTED, *checked])
    judgement, _ = judged(lambda _: replace(next(ends)), tests=1, checker=PROGRAM)
    assert (judgement.verdict, judgement.by_wall_time) == (verdict, len(checked) == 2)


# ---- wall time ----

PROBLEM = Problem("p", "", (), (Test("", "7"),) * 3, time_limit_s=2.0)
SUBMISSIONS = [Submission(PROBLEM, "print(7)")]
WALL_CONFIG = JudgeConfig(time_factor=1.0)


def finished(**times):
    return lambda position: Execution(Outcome.FINISHED, b"7", **times)


def times_out(**times):
    return lambda position: Execution(Outcome.TIME_LIMIT, accounted=True, **times)


KINDS = {
    "slept": (times_out(cpu_s=0.1, wall_s=7.2), Verdict.TIME_LIMIT, False),
    "burnt and slept": (times_out(cpu_s=1.0, wall_s=7.2), Verdict.TIME_LIMIT, False),
    "over its budget": (finished(wall_s=7.0, idle_s=11.0), Verdict.TIME_LIMIT, False),
    "killed": (lambda position: replace(KILLED), Verdict.RUNTIME_ERROR, False),
    "ended unseen": (finished(wall_s=9.0, late=True), Verdict.ACCEPTED, False),
    "computed": (times_out(cpu_s=2.4, wall_s=2.5), Verdict.TIME_LIMIT, True),
    "right": (finished(cpu_s=0.1, wall_s=0.2), Verdict.ACCEPTED, True),
    # of the compiler, whose limit is CPU time
    "compiled": (lambda position: Execution(Outcome.TIME_LIMIT), Verdict.TIME_LIMIT, True),
}
kinds = pytest.mark.parametrize(("execution", "verdict", "kept"), KINDS.values(), ids=KINDS)


@kinds
def test_a_judge_remembers_neither_in_memory_nor_on_disk(verdicts, execution, verdict, kept):
    first, second = Scripted(execution), Scripted(execution)
    judge = Judge(first, WALL_CONFIG, verdicts)
    [judgement] = judge.judge(SUBMISSIONS)
    assert (judgement.verdict, judgement.by_wall_time) == (verdict, not kept)
    assert judge.stats.by_wall_time == (not kept)
    before = first.ran
    judge.judge(SUBMISSIONS)
    assert (first.ran == before) is kept
    assert bool(judge.state_dict()["cache"]) is kept
    Judge(second, WALL_CONFIG, verdicts).judge(SUBMISSIONS)
    assert (second.ran == 0) is kept


def test_neither_is_a_passed_test_of_such_a_program(verdicts):
    """Other runs would add up tests of which no run had time for all."""
    naps = Scripted(finished(wall_s=7.0, idle_s=11.0))
    Judge(naps, WALL_CONFIG, verdicts).judge(SUBMISSIONS)
    assert naps.ran == 2
    again = Scripted(finished(wall_s=7.0, idle_s=11.0))
    assert Judge(again, WALL_CONFIG, verdicts).judge(SUBMISSIONS)[0].verdict is Verdict.TIME_LIMIT


@pytest.mark.parametrize("by_wall_time", [True, False])
def test_the_log_of_validate_holds_it_and_a_resumed_one_judges_it_again(tmp_path, by_wall_time):
    file = tmp_path / "log.jsonl"
    judgement = Judgement(Verdict.TIME_LIMIT, 0, 3, 1, "x", by_wall_time=by_wall_time)
    with VerdictLog(file, "1") as log:
        log.add(PROBLEM, "solution", 0, "x", False, judgement)
    with VerdictLog(file, "1") as log:
        assert (log.get(PROBLEM, "solution", "x") is None) is by_wall_time
    assert len(file.read_text().splitlines()) == 1


def test_a_judge_of_other_rules_takes_no_judgement_from_a_checkpoint():
    judge = Judge(Scripted(finished()), WALL_CONFIG)
    judge.judge(SUBMISSIONS)
    same, other = Judge(Scripted(finished()), WALL_CONFIG), Judge(Scripted(finished()))
    for one, kept in ((same, True), (other, False)):
        one.load_state_dict(judge.state_dict())
        assert bool(one.state_dict()["cache"]) is kept
