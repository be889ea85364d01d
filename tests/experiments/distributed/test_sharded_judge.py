"""One environment whose work several judges do: they say, count and know what one would."""

import copy

import pytest

from envs.environment import Submission
from envs.judge.judge import Judge
from envs.problem import Problem, Test
from envs.sandbox.embedded import EmbeddedSandbox
from experiments.distributed.sharded_judge import Bench, SplitJudge, owner

INPUTS = [(i, 1, i + 5) for i in range(5)]
PROBLEMS = [
    Problem(f"p{i}", "", (), tuple(Test(f"{n}\n", f"{n * n}\n") for n in given))
    for i, given in enumerate(INPUTS)
]
PROGRAMS = ("print(int(input()) ** 2)", "print(int(input()))", "print(1)", "no program at all: (")


class HereJudge(SplitJudge):
    """Its judges are in this process."""

    def __init__(self, benches):
        self.benches = benches
        for bench in benches:
            bench.add()
        first = benches[0].made[0]
        super().__init__(len(benches), first.version, first.state_dict())

    def work(self, parts):
        return [bench.judged(0, part) for bench, part in zip(self.benches, parts, strict=True)]

    def tell(self, state):
        for bench in self.benches:
            bench.know(0, copy.deepcopy(state))


@pytest.fixture(scope="module")
def sandbox():
    with EmbeddedSandbox(1) as sandbox:
        yield sandbox


def batches():
    for last in (2, 4, 4):
        yield [Submission(problem, text) for problem in PROBLEMS for text in PROGRAMS[:last]]


def timeless(stats):
    return {name: value for name, value in vars(stats).items() if name != "cpu_s"}


def told(judgements):
    return [(j.verdict, j.passed, j.run, j.program) for j in judgements]


def test_several_judges_say_and_count_what_one_does(sandbox):
    one = Judge(sandbox)
    several = HereJudge([Bench(lambda: Judge(sandbox)) for _ in range(3)])
    assert len({owner(problem, 3) for problem in PROBLEMS}) > 1
    for batch in batches():
        assert told(several.judge(batch)) == told(one.judge(batch))
        assert timeless(several.stats) == timeless(one.stats)
    known, theirs = one.state_dict(), several.state_dict()
    assert theirs["failures"] == known["failures"]
    assert theirs["cache"].keys() == known["cache"].keys()


def test_judges_that_are_told_what_others_knew_go_on_as_they_would_have(sandbox):
    first, second, third = batches()
    several = HereJudge([Bench(lambda: Judge(sandbox)) for _ in range(2)])
    several.judge(first)
    others = HereJudge([Bench(lambda: Judge(sandbox)) for _ in range(3)])
    others.load_state_dict(several.state_dict())
    vars(others.stats).update(vars(several.stats))
    for batch in (second, third):
        assert told(others.judge(batch)) == told(several.judge(batch))
    assert timeless(others.stats) == timeless(several.stats)


def pieces_of(batch, judges):
    """Each judge's part in pieces of two, the last ones first; the second judge's stay away."""
    numbered = list(enumerate(batch))
    for at in range(judges):
        own = [item for item in numbered if owner(item[1].problem, judges) == at]
        cut = [own[i : i + 2] for i in range(0, len(own), 2)]
        yield own, [] if at == 1 else cut[:0:-1]


def test_what_comes_in_pieces_is_judged_and_counted_as_a_whole(sandbox):
    one, benches = Judge(sandbox), [Bench(lambda: Judge(sandbox)) for _ in range(3)]
    several = HereJudge(benches)
    for batch in batches():
        expected = one.judge(batch)
        for bench, (own, pieces) in zip(benches, pieces_of(batch, 3), strict=True):
            for piece in pieces:
                bench.begin(0, piece)
            judgements = several.taken(bench.judged_begun(0, own))
            assert told(judgements) == told([expected[index] for index, _ in own])
        assert timeless(several.stats) == timeless(one.stats)
    assert several.state_dict()["failures"] == one.state_dict()["failures"]
