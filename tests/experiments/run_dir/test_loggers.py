"""Weights & Biases and TensorBoard without a network: what they wrote is read back."""

import json
import math

import pandas as pd
import pytest

from analysis.scores import scores
from experiments.config.composition import config_of
from experiments.run_dir.loggers import Loggers, group, open_loggers
from experiments.trainer import train
from tests.experiments.run_dir.wandb_file import history, records, summary, values

SMALL = [
    "algo=grpo",
    "steps=2",
    "eval.every=0",
    "eval.samples=6",
    "eval.k=[1,2]",
    "train.prompts=2",
    "train.group_size=2",
    "train.lag=1",
    "task.train_problems=4",
    "task.tune_problems=2",
    "task.choose_problems=2",
    "task.test_problems=2",
    "sandbox=embedded",
]


@pytest.fixture
def no_key(tmp_path, monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_run_is_read_back_from_wandb_and_tensorboard(tmp_path, no_key, capfd):
    pytest.importorskip("tensorboard")
    both = [*SMALL, f"output_dir={tmp_path}/out"]
    outcome = train(config_of([*both, "logger=[wandb,tensorboard]"]))
    assert outcome.status == "finished", outcome.error
    metrics = pd.read_parquet(outcome.folder / "metrics.parquet")
    evals = pd.read_parquet(outcome.folder / "evals.parquet")
    (file,) = outcome.folder.glob("wandb/offline-run-*/*.wandb")
    assert f"upload: wandb sync {file.parent.parent}/offline-run-*" in capfd.readouterr().err
    holds_the_series(records(file), metrics, evals)
    holds_the_tables(records(file), file.parent, evals)
    holds_what_it_is(records(file), outcome.folder)
    holds_events(outcome.folder / "tensorboard", metrics)


@pytest.mark.slow
def test_a_run_that_goes_on_stays_one_run(tmp_path, no_key, capfd):
    given = [*SMALL, f"output_dir={tmp_path}/out", "logger=[wandb,tensorboard]"]
    folder = train(config_of([*given, "steps=1"])).folder
    assert train(config_of([*given, "steps=3"]), folder).status == "finished"
    first, second = sorted(folder.glob("wandb/offline-run-*/*.wandb"))
    ids = {one.run.run_id for f in (first, second) for one in records(f) if one.HasField("run")}
    assert ids == {folder.name}
    assert [row["step"] for row in history(records(first))] == [0, 1]
    assert [row["step"] for row in history(records(second))] == [2, 3]
    assert [row["_step"] for row in history(records(second))] == [2, 3]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert [e.step for e in events.Scalars("train/loss")] == [1, 2, 3]


def holds_the_series(found, metrics, evals):
    rows = history(found)
    assert [row["step"] for row in rows] == [0, 1, 2]
    for row, kept in zip(rows[1:], metrics.to_dict("records"), strict=True):
        assert row["train/reward_mean"] == kept["reward_mean"]
        assert row["budget/generated_tokens"] == kept["budget/generated_tokens"]
        assert all(row[f"train/{k}"] == kept[k] for k in ("loss", "grad_norm", "policy_lag"))
    assert "eval/kl_ref" not in rows[1] and math.isfinite(rows[2]["eval/kl_ref"])
    for row in (rows[0], rows[2]):
        scored = scores(evals[evals["step"] == row["step"]], (1, 2))
        assert row["eval/pass@1"] == pytest.approx(scored["pass@1"].values.mean())
        assert row["eval/pass@2"] == pytest.approx(scored["pass@2"].values.mean())
        assert "eval/distinct_2" in row and "eval/token_entropy" in row
        assert "budget/judged_programs" in row  # any budget can be its axis
    last = summary(found)
    assert last["eval/pass@1"] == rows[2]["eval/pass@1"]
    assert last["status"] == "finished"


def holds_the_tables(found, folder, evals):
    paths = [row["eval/samples.path"] for row in history(found) if "eval/samples.path" in row]
    assert len(paths) == 2
    table = json.loads((folder / "files" / paths[1]).read_text())
    shown = evals[(evals["step"] == 2) & (evals["sample"] < 4)]
    assert table["columns"][-1] == "program"
    assert [row[-1] for row in table["data"]] == list(shown["program"])


def holds_what_it_is(found, folder):
    (run,) = [one.run for one in found if one.HasField("run")]
    assert (run.run_id, run.job_type) == (folder.name, "train")
    assert run.run_group.startswith("mini/grpo-")
    config = values(run.config.update)
    assert (config["train"]["lag"], config["algo"]["name"], config["seed"]) == (1, "grpo", 0)
    defined = {
        one.metric.name or one.metric.glob_name: one.metric.step_metric
        for one in found
        if one.HasField("metric")
    }
    assert defined["train/*"] == defined["eval/*"] == "step"
    assert {"step", "budget/generated_tokens", "budget/judged_programs"} <= set(defined)


def holds_events(folder, metrics):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    series = [(e.step, e.value) for e in events.Scalars("train/reward_mean")]
    assert series == [
        (s, pytest.approx(r)) for s, r in zip(metrics["step"], metrics["reward_mean"], strict=True)
    ]
    assert [e.step for e in events.Scalars("eval/pass@1")] == [0, 2]
    assert any(tag.startswith("eval/samples/") for tag in events.Tags()["tensors"])


class Failing:
    """Raises where it is told to."""

    def __init__(self, at):
        self.at, self.got = at, []
        self._maybe("init")

    def _maybe(self, what):
        self.got.append(what)
        if what == self.at:
            raise OSError(f"no route at {what}")

    def step(self, step, values):
        self._maybe("step")

    def evaluation(self, step, values, samples):
        self._maybe("evaluation")

    def close(self, status):
        self._maybe("close")


@pytest.mark.parametrize("at", ["init", "step", "evaluation", "close"])
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
    assert sound.got == ["init", "step", "evaluation", "step", "evaluation", "close"]


SAMPLE = {"step": 1, "problem": "p", "sample": 0, "verdict": "ACCEPTED", "program": "print(1)"}
EVALUATED = [SAMPLE | {"tokens": 3, "entropy": 0.1, "passed": 1, "total": 1}]


def test_scores_at_a_further_temperature_have_names_of_their_own():
    logged, logger = [], Failing("never")
    logger.step = lambda step, values: logged.append((step, values))
    loggers = Loggers({"wandb": lambda: logger}, pytest.fail)
    loggers.evaluation(1, EVALUATED, (1,), {})
    loggers.evaluation(1, EVALUATED, (1,), {}, temperature=0.25)
    ((step, values),) = logged
    assert step == 1 and values["eval/pass@1 (T=0.25)"] == 1.0
    assert all(name.endswith(" (T=0.25)") for name in values)
    assert logger.got == ["init", "evaluation"]  # no samples in place of the main ones


@pytest.mark.parametrize("at", ["init", "log", "finish"])
def test_wandb_itself_raising_stops_no_run(at, tmp_path, no_key, monkeypatch):
    import wandb

    def fail(*_, **__):
        raise wandb.Error(f"down at {at}")

    owner = wandb if at == "init" else wandb.Run
    monkeypatch.setattr(owner, at, fail)
    said = []
    config = config_of([*SMALL, "logger=wandb"])
    settings = {"output_dir": "o", "name": "n", "algo": {"name": "ppo"}}
    loggers = open_loggers(config, tmp_path, settings, 0, said.append)
    loggers.step({"step": 1, "loss": 1.0})
    loggers.close("finished")
    assert len(said) == 1 and f"down at {at}" in said[0]
    monkeypatch.undo()
    wandb.teardown()


def test_a_group_is_everything_but_the_seed_and_what_a_resumed_run_may_change():
    model, train = {"path": "o/n/a"}, {"prompts": 8, "micro_batch": 2}
    held = {"output_dir": "o", "name": "n", "seed": 0, "steps": 3, "model": model, "train": train}
    held["algo"] = {"name": "ppo"}
    one = group(held)
    assert one.startswith("n/ppo-")
    assert one == group(held | {"seed": 1, "model": {"path": "o/n/b"}})
    assert one == group(held | {"steps": 4, "train": train | {"micro_batch": 4}})
    assert one != group(held | {"train": train | {"prompts": 4}})
