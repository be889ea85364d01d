"""Loggers."""

import math
import sys
from types import SimpleNamespace

import pandas as pd
import pytest

from analysis.metrics import scores
from experiments.config.composition import config_of
from experiments.run_dir.loggers import Loggers, group
from experiments.trainer import train

# Weights & Biases and TensorBoard without a network: what they wrote is read back.

SMALL = [
    *("algo=grpo", "steps=2", "eval.every=0", "eval.samples=6", "eval.k=[1,2]"),
    *("train.prompts=2", "train.group_size=2", "train.lag=1", "task.train_problems=4"),
    *("task.tune_problems=2", "task.choose_problems=2", "task.test_problems=2"),
    "sandbox=embedded",
]


class FakeRun:
    """Takes the place of W&B's run, which would upload, or write a log in a format of its own."""

    def __init__(self, **given):
        self.given, self.logged, self.axes, self.summary = given, [], {}, {}
        self.settings = SimpleNamespace(mode="offline", sync_dir="folder/offline-run-1")

    def define_metric(self, name, step_metric=None):
        self.axes[name] = step_metric

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self, exit_code):
        self.exit_code = exit_code


def test_wandb_and_tensorboard_get_rows_and_scores_also_of_a_resumed_run(tmp_path, monkeypatch):
    import wandb

    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    runs = []
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(wandb, "login", lambda prompt: False)
    monkeypatch.setattr(wandb, "init", lambda **given: runs.append(FakeRun(**given)) or runs[-1])
    given = [*SMALL, f"output_dir={tmp_path}/out", "logger=[wandb,tensorboard]", "eval.show=2"]
    folder = train(config_of([*given, "steps=1"])).folder
    assert train(config_of([*given, "steps=3"]), folder).status == "finished"
    metrics = pd.read_parquet(folder / "metrics.parquet")
    evals = pd.read_parquet(folder / "evals.parquet")
    first, second = runs
    assert {run.given["id"] for run in runs} == {folder.name}
    assert first.given["mode"] == "offline" and first.given["group"].startswith("mini/grpo-")
    assert first.given["config"]["train"]["lag"] == 1
    assert first.axes["train/*"] == first.axes["eval/*"] == "step"
    assert "budget/generated_tokens" in first.axes
    assert [step for step, _ in first.logged] == [0, 1, 1, 1]
    assert [step for step, _ in second.logged] == [2, 2, 3, 3]
    last = {name: value for _, values in second.logged[2:] for name, value in values.items()}
    for run, at, step in ((first, 1, 1), (second, 0, 2)):
        table = run.logged[at][1]["samples"].get_dataframe()
        rewards = table.groupby("problem")["reward"]
        assert len(table) == 4 and (rewards.size() == 2).all() and table["text"].str.len().all()
        assert table["reward"].mean() == pytest.approx(
            metrics.set_index("step")["reward_mean"][step]
        )
    kept = metrics.iloc[-1]
    assert all(last[f"train/{k}"] == kept[k] for k in ("loss", "reward_mean", "policy_lag"))
    assert last["budget/generated_tokens"] == kept["budget/generated_tokens"]
    assert "eval/kl_ref" not in second.logged[0][1] and math.isfinite(last["eval/kl_ref"])
    scored = scores(evals[evals["step"] == 3], (1, 2))
    assert last["eval/pass@2"] == pytest.approx(scored["pass@2"].values.mean())
    assert (second.summary["status"], second.exit_code) == ("finished", 0)
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    series = [(event.step, event.value) for event in events.Scalars("train/reward_mean")]
    assert series == [(s, pytest.approx(r)) for s, r in metrics[["step", "reward_mean"]].values]


class Failing:
    """Raises where it is told to."""

    def __init__(self, at):
        self.at, self.got = at, []
        self._maybe("init")

    def _maybe(self, what):
        self.got.append(what)
        if what == self.at:
            raise OSError(f"no route at {what}")

    def log(self, step, values):
        self._maybe("log")

    def close(self, status):
        self._maybe("close")


@pytest.mark.parametrize("at", ["init", "log", "close"])
def test_one_that_fails_is_said_once_and_the_others_go_on(at):
    said, sound = [], Failing("never")
    loggers = Loggers({"wandb": lambda: Failing(at), "tensorboard": lambda: sound}, said.append)
    for step in (1, 2):
        loggers.step({"step": step, "loss": 1.0})
        loggers.evaluation(step, EVALUATED, (1,), {})
    loggers.close("finished")
    assert len(said) == 1
    assert said[0].startswith("logger=wandb: could not ") and f"no route at {at}" in said[0]
    assert said[0].endswith("the run continues without it")
    assert sound.got == ["init", "log", "log", "log", "log", "close"]


SAMPLE = {"step": 1, "problem": "p", "sample": 0, "verdict": "ACCEPTED", "program": "print(1)"}
EVALUATED = [SAMPLE | {"tokens": 3, "entropy": 0.1, "passed": 1, "total": 1}]


def test_scores_at_a_further_temperature_have_names_of_their_own():
    logged, logger = [], Failing("never")
    logger.log = lambda step, values: logged.append((step, values))
    loggers = Loggers({"wandb": lambda: logger}, pytest.fail)
    loggers.evaluation(1, EVALUATED, (1,), {})
    loggers.evaluation(1, EVALUATED, (1,), {}, temperature=0.25)
    _, (step, values) = logged
    assert step == 1 and values["eval/pass@1 (T=0.25)"] == 1.0
    assert all(name.endswith(" (T=0.25)") for name in values)


def test_a_group_is_everything_but_the_seed_and_what_a_resumed_run_may_change():
    model, train = {"path": "o/n/a"}, {"prompts": 8, "micro_batch": 2}
    held = {"output_dir": "o", "name": "n", "seed": 0, "steps": 3, "model": model, "train": train}
    held["algo"] = {"name": "ppo"}
    one = group(held)
    assert one.startswith("n/ppo-")
    assert one == group(held | {"seed": 1, "model": {"path": "o/n/b"}})
    assert one == group(held | {"steps": 4, "train": train | {"micro_batch": 4}})
    assert one != group(held | {"train": train | {"prompts": 4}})


# trackio without a network: what it wrote is read back through its own API.


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """trackio's storage in an empty folder, which it names once, when it is imported."""
    if "trackio" in sys.modules:
        pytest.skip("trackio was imported before, with the user's own folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKIO_DIR", str(tmp_path_factory.mktemp("trackio")))
        for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
            patch.delenv(name, raising=False)
        pytest.importorskip("trackio")
        yield pytest.importorskip("trackio.sqlite_storage").SQLiteStorage


def test_a_run_that_goes_on_is_read_back_from_trackio_as_one_run(tmp_path, storage, capfd):
    given = [*SMALL, f"output_dir={tmp_path}/out", "logger=trackio"]
    folder = train(config_of([*given, "steps=1"])).folder
    outcome = train(config_of(given), folder)
    assert outcome.status == "finished", outcome.error
    assert storage.get_runs("spo-bench") == [folder.name]
    assert storage.get_run_config("spo-bench", folder.name)["algo"]["name"] == "grpo"
    rows = storage.get_logs("spo-bench", folder.name)
    metrics = pd.read_parquet(folder / "metrics.parquet").set_index("step")
    logged = {row["step"]: row for row in rows if "train/loss" in row}
    assert sorted(logged) == list(metrics.index) == [1, 2]
    for step, row in logged.items():
        assert row["train/reward_mean"] == metrics.loc[step, "reward_mean"]
        assert row["budget/generated_tokens"] == metrics.loc[step, "budget/generated_tokens"]
    evaluated = [row for row in rows if "eval/pass@1" in row]
    assert [row["step"] for row in evaluated] == [0, 1, 2] and all(
        math.isfinite(row["eval/pass@1"]) for row in evaluated
    )
    tables = [row["samples"] for row in rows if "samples" in row]
    assert len(tables) == 1 and len(tables[0]["_value"]) == 4
    assert [row["status"] for row in rows if "status" in row] == ["finished", "finished"]
    assert "Trackio" not in capfd.readouterr().out
