"""A task without programs goes the whole way without a sandbox."""

import json

import pandas
import pytest

from experiments.errors import UserError
from experiments.rollout import environments
from experiments.rollout.environments import open_environments
from experiments.trainer import train
from tests.experiments.compose import config

SMALL = ["steps=2", "eval.samples=4", "eval.k=[1,2]", "train.prompts=4", "train.group_size=4"]


class Halves:
    """Somebody's environment, half done."""

    version = "1"


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch):
    def refuse(_):
        raise AssertionError("a sandbox was opened")

    monkeypatch.setattr(environments, "open_sandbox", refuse)


def test_sums_open_no_sandbox_whatever_the_algorithm_asks_for(tmp_path):
    given = [
        "algo=spo",
        "algo.q0=monte_carlo",
        "algo.q0_samples=4",
        "train.offline_share=0.5",
        *SMALL,
    ]
    outcome = train(config("task=sums", *given, f"output_dir={tmp_path}"))
    folder = outcome.folder
    assert outcome.status == "finished"
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
