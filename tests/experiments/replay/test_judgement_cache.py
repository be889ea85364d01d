"""Judgements of programs that a run did not generate, on disk."""

import pytest

from envs.problem import Judgement, Problem, Verdict
from experiments.replay.judgements import JudgementCache
from experiments.run_dir.ledger import Ledger

PROBLEM = Problem("p", "", (), ())


class Always:
    """Gives one judgement, and counts the programs."""

    version = "1"

    def __init__(self, verdict, by_wall_time):
        self.judgement = Judgement(verdict, 0, 1, 1, "x", by_wall_time=by_wall_time)
        self.judged = 0

    def judge(self, submissions):
        self.judged += len(submissions)
        return [self.judgement] * len(submissions)


@pytest.mark.parametrize(
    ("verdict", "by_wall_time", "kept"),
    [
        (Verdict.ACCEPTED, False, True),
        (Verdict.TIME_LIMIT, False, True),
        (Verdict.TIME_LIMIT, True, False),
        (Verdict.ACCEPTED, True, False),
        (Verdict.INFRA_ERROR, False, False),
    ],
)
def test_only_what_another_run_would_find_too_is_kept(tmp_path, verdict, by_wall_time, kept):
    judge = Always(verdict, by_wall_time)
    for _ in range(2):
        cache = JudgementCache(tmp_path, judge, Ledger())
        assert cache.submit(PROBLEM, {"x": "x"})() == {"x": judge.judgement}
    assert judge.judged == (1 if kept else 2)
