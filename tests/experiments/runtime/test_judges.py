"""Judges of a run: none for a task without programs; several give the results of one."""

import copy
import json

import pandas
import pytest

from envs.judge.judge import Judge
from envs.problem import Problem, Submission, Test
from envs.sandbox.embedded import EmbeddedSandbox
from experiments.errors import UserError
from experiments.runtime.judges import JudgeShard, ShardedJudge, open_environments, shard_of
from experiments.trainer import train
from tests.experiments.compose import config, finished

SMALL = ["steps=2", "eval.samples=4", "eval.k=[1,2]", "train.prompts=4", "train.group_size=4"]


class Halves:
    """Somebody's environment, half done."""

    version = "1"


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch):
    def refuse(_):
        raise AssertionError("a sandbox was opened")

    monkeypatch.setattr("experiments.runtime.judges.open_sandbox", refuse)


def test_sums_open_no_sandbox_whatever_the_algorithm_asks_for(tmp_path):
    given = ["algo=spo", "algo.q0=monte_carlo", "algo.q0_samples=4", "train.offline_share=0.5"]
    folder = finished("task=sums", *given, *SMALL, f"output_dir={tmp_path}")
    info = json.loads((folder / "run.json").read_text())
    assert info["sandbox"] == {"name": "none", "strength": "no program is run"}
    assert info["judge_version"].startswith("first-integer-")
    evals = pandas.read_parquet(folder / "evals.parquet")
    assert len(evals) == 2 * 30 * 4 and evals["problem"].str.startswith("sums/choose/").all()
    metrics = pandas.read_parquet(folder / "metrics.parquet")
    assert metrics["offline_share"].tolist() == [0.5, 0.5]
    assert (metrics["budget/judged_programs"] > 0).all()
    assert {"reference_rewards", "offline"} <= {f.name for f in (tmp_path / ".cache").iterdir()}


def far_too_much(judgement):
    return 3.0


def test_a_reward_out_of_its_range_ends_a_run_in_a_line(tmp_path):
    own = f"task.reward.kind={__name__}.far_too_much"
    outcome = train(config("task=sums", "algo=grpo", own, *SMALL, f"output_dir={tmp_path}"))
    assert (outcome.status, outcome.expected) == ("failed", True)
    assert "paid 3, " in outcome.error and "task.reward.high=1" in outcome.error


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("envs.tasks.sums.FirstIntger", "FirstInteger"),
        ("envs.tasks.sums.prompt", "task.environment=envs.tasks.sums.prompt: "),
        (f"{__name__}.Halves", "its result has no stats and no judge"),
    ],
)
def test_what_is_no_environment_is_said_in_a_line(name, said):
    with (
        pytest.raises(UserError) as error,
        open_environments(config("task=sums", f"task.environment={name}")),
    ):
        pass
    assert said in str(error.value) and "\n" not in str(error.value)


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
