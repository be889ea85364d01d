"""Verdicts that wall time decided: another run may end otherwise, so nobody remembers them."""

import pytest

from envs.judge.judge import Judge, JudgeConfig, Submission
from envs.judge.verdict_cache import VerdictCache, VerdictLog
from envs.problem import Judgement, Problem, Test, Verdict
from envs.sandbox.base import Execution, Outcome
from tests.envs.judge.test_budget import Scripted

PROBLEM = Problem("p", "", (), (Test("", "7"),) * 3, time_limit_s=2.0)
SUBMISSIONS = [Submission(PROBLEM, "print(7)")]
CONFIG = JudgeConfig(time_factor=1.0)


def finished(**times):
    return lambda position: Execution(Outcome.FINISHED, b"7", **times)


def times_out(**times):
    return lambda position: Execution(Outcome.TIME_LIMIT, accounted=True, **times)


KINDS = {
    "slept": (times_out(cpu_s=0.1, wall_s=7.2), Verdict.TIME_LIMIT, False),
    "burnt and slept": (times_out(cpu_s=1.0, wall_s=7.2), Verdict.TIME_LIMIT, False),
    "over its budget": (finished(wall_s=7.0, idle_s=11.0), Verdict.TIME_LIMIT, False),
    "ended unseen": (finished(wall_s=9.0, late=True), Verdict.ACCEPTED, False),
    "computed": (times_out(cpu_s=2.4, wall_s=2.5), Verdict.TIME_LIMIT, True),
    "right": (finished(cpu_s=0.1, wall_s=0.2), Verdict.ACCEPTED, True),
    # of the compiler, whose limit is CPU time
    "compiled": (lambda position: Execution(Outcome.TIME_LIMIT), Verdict.TIME_LIMIT, True),
}
kinds = pytest.mark.parametrize(("execution", "verdict", "kept"), KINDS.values(), ids=KINDS)


@pytest.fixture
def verdicts(tmp_path):
    opened = VerdictCache(tmp_path / "verdicts.sqlite")
    yield opened
    opened.close()


@kinds
def test_a_judge_remembers_neither_in_memory_nor_on_disk(verdicts, execution, verdict, kept):
    first, second = Scripted(execution), Scripted(execution)
    judge = Judge(first, CONFIG, verdicts)
    [judgement] = judge.judge(SUBMISSIONS)
    assert (judgement.verdict, judgement.by_wall_time) == (verdict, not kept)
    assert judge.stats.by_wall_time == (not kept)
    before = first.ran
    judge.judge(SUBMISSIONS)
    assert (first.ran == before) is kept
    assert bool(judge.state_dict()["cache"]) is kept
    Judge(second, CONFIG, verdicts).judge(SUBMISSIONS)
    assert (second.ran == 0) is kept


def test_neither_is_a_passed_test_of_such_a_program(verdicts):
    """Other runs would add up tests of which no run had time for all."""
    naps = Scripted(finished(wall_s=7.0, idle_s=11.0))
    Judge(naps, CONFIG, verdicts).judge(SUBMISSIONS)
    assert naps.ran == 2
    again = Scripted(finished(wall_s=7.0, idle_s=11.0))
    assert Judge(again, CONFIG, verdicts).judge(SUBMISSIONS)[0].verdict is Verdict.TIME_LIMIT


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
    judge = Judge(Scripted(finished()), CONFIG)
    judge.judge(SUBMISSIONS)
    same, other = Judge(Scripted(finished()), CONFIG), Judge(Scripted(finished()))
    for one, kept in ((same, True), (other, False)):
        one.load_state_dict(judge.state_dict())
        assert bool(one.state_dict()["cache"]) is kept
