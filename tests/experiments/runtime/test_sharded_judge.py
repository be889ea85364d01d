"""Several judges give the verdicts, counts and state of one."""

import copy

import pytest

from envs.environment import Submission
from envs.judge.judge import Judge
from envs.problem import Problem, Test
from envs.sandbox.embedded import EmbeddedSandbox
from experiments.runtime.sharded_judge import JudgeShard, ShardedJudge, shard_of

INPUTS = [(i, 1, i + 5) for i in range(5)]
PROBLEMS = [
    Problem(f"p{i}", "", (), tuple(Test(f"{n}\n", f"{n * n}\n") for n in given))
    for i, given in enumerate(INPUTS)
]
PROGRAMS = ("print(int(input()) ** 2)", "print(int(input()))", "print(1)", "no program at all: (")


class LocalJudge(ShardedJudge):
    """Its judges are in this process."""

    def __init__(self, workers):
        self.workers = workers
        first = workers[0].environment(0)
        super().__init__(len(workers), first.version, first.state_dict())

    def judge_shards(self, shards):
        return [worker.judge(0, shard) for worker, shard in zip(self.workers, shards, strict=True)]

    def load_shards(self, state):
        for worker in self.workers:
            worker.load_state(0, copy.deepcopy(state))


@pytest.fixture(scope="module")
def sandbox():
    with EmbeddedSandbox(1) as sandbox:
        yield sandbox


def batches():
    for last in (2, 4, 4):
        yield [Submission(problem, text) for problem in PROBLEMS for text in PROGRAMS[:last]]


def timeless(stats):
    return {name: value for name, value in vars(stats).items() if name != "cpu_s"}


def outcomes(judgements):
    return [(j.verdict, j.passed, j.run, j.program) for j in judgements]


def test_several_judges_give_the_verdicts_and_counts_of_one(sandbox):
    one = Judge(sandbox)
    several = LocalJudge([JudgeShard(lambda: Judge(sandbox)) for _ in range(3)])
    assert len({shard_of(problem, 3) for problem in PROBLEMS}) > 1
    for batch in batches():
        assert outcomes(several.judge(batch)) == outcomes(one.judge(batch))
        assert timeless(several.stats) == timeless(one.stats)
    known, theirs = one.state_dict(), several.state_dict()
    assert theirs["problems"] == known["problems"]
    assert theirs["cache"].keys() == known["cache"].keys()


def test_judges_with_the_state_of_others_continue_as_those_would(sandbox):
    first, second, third = batches()
    several = LocalJudge([JudgeShard(lambda: Judge(sandbox)) for _ in range(2)])
    several.judge(first)
    others = LocalJudge([JudgeShard(lambda: Judge(sandbox)) for _ in range(3)])
    others.load_state_dict(several.state_dict())
    vars(others.stats).update(vars(several.stats))
    for batch in (second, third):
        assert outcomes(others.judge(batch)) == outcomes(several.judge(batch))
    assert timeless(others.stats) == timeless(several.stats)
