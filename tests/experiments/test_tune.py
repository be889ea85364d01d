"""Tuning: search spaces, what is chosen from scores, and that it resumes after a kill."""

import csv
import itertools
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from experiments import tune as tuning
from experiments.config.composition import config_of as composed
from experiments.errors import UserError
from experiments.runner import End, Runner
from experiments.tune import SPACES, Range, read_space, sampler, tune

optuna = pytest.importorskip("optuna")

STUDY = """
question: Which?
seeds: [0]
overrides: [steps=4, eval.every=2, eval.samples=10, eval.split=tune, sandbox=embedded]
tuning: {overrides: [train.prompts=4], seed: 7, rescore_seeds: [8, 9], longer: 3, rescored: 2,
  rescore_overrides: [steps=6]}
arms:
  spo: {overrides: [experiment=tuned_s_spo, algo=spo, algo.loss=squared]}
  grpo: {overrides: [algo=grpo]}
  other: {overrides: [experiment=tuned_front_spo, algo=spo, algo.beta=1]}
  child: {overrides: [algo=spo], weights_of: grpo}
"""


class Killed(BaseException):
    """In place of SIGKILL."""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A study, a made-up score of each run, and which runs were begun."""
    file, begun, fails, kill_at = tmp_path / "s.yaml", [], set(), []
    file.write_text(STUDY)
    folder = tmp_path / "a run"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"commit": "abc"}))
    known = {}

    def score(job):
        rate = job.config.algo.learning_rate
        longer = job.config.steps == 6
        best = -(abs(rate - 1e-3)) - longer * 10 * abs(rate - 5e-4) + job.config.seed / 1e6
        return best if job.end.status == "finished" else None

    def run(self):
        while self.waiting:
            job = self.waiting.pop(0)
            if kill_at and len(begun) == kill_at[0]:
                raise Killed
            if job.overrides not in known:
                begun.append(job)
            failed = job.label in fails
            known[job.overrides] = job.end = End("failed" if failed else "finished", folder)
            more = self.after(job)
            self.jobs += more
            self.waiting += more

    def config_of(words):
        """Composes only what has no values of a trial: that takes its time."""
        given = dict(word.partition("=")[::2] for word in words)
        if "algo.learning_rate" not in given:
            return composed(words)
        algo = SimpleNamespace(learning_rate=float(given["algo.learning_rate"]))
        return SimpleNamespace(seed=int(given["seed"]), steps=int(given["steps"]), algo=algo)

    monkeypatch.setattr(tuning, "config_of", config_of)
    monkeypatch.setattr(tuning, "lock", lambda folder: os.open(folder, os.O_RDONLY))
    monkeypatch.setattr(Runner, "run", run)
    monkeypatch.setattr(tuning, "score", score)
    given = [f"study={file}", "trials=6", "jobs=2", f"output_dir={tmp_path / 'out'}"]

    class World:
        pass

    here = World()
    here.begun, here.fails, here.kill_at, here.folder = begun, fails, kill_at, tmp_path
    here.call = lambda *more: tune([*given, *more])
    return here


def rows(world, arm="spo"):
    with (world.folder / "tuned-s" / f"{arm}.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_best_trials_run_longer_and_the_best_of_these_on_fresh_seeds(world, capsys):
    assert world.call() == 0
    kinds = [row["run"] for row in rows(world)]
    assert [kinds.count(kind) for kind in ("trial", "longer", "rescore")] == [6, 3, 4]
    assert {row["seed"] for row in rows(world) if row["run"] == "rescore"} == {"8", "9"}
    assert {job.config.steps for job in world.begun if "again" in job.label} == {6}
    arms = {job.label.partition("-")[0] for job in world.begun}
    assert arms == {"spo", "grpo"}  # others have another arm's values or weights
    winner = yaml.safe_load((world.folder / "tuned_s_spo.yaml").read_text())
    of_longer = [row for row in rows(world) if row["run"] == "longer"]
    best = max(of_longer, key=lambda row: float(row["score"]))
    assert winner["algo"]["learning_rate"] == pytest.approx(float(best["algo.learning_rate"]))
    assert winner["algo"]["loss"] == "squared"  # the arm's own
    assert winner["defaults"] == [{"override /algo": "spo"}]
    assert "3 of the best again" in winner["tuned"] and "tuned-s/spo.csv" in winner["tuned"]
    page = (world.folder / "tuned-s.md").read_text()
    assert page.startswith("Score: ") and "tuned-s.svg" in page
    assert "<svg" in (world.folder / "tuned-s.svg").read_text()


def test_a_killed_tuning_resumes_with_the_same_values(world, tmp_path):
    assert world.call("arms=spo") == 0
    whole, values = rows(world), [job.overrides for job in world.begun]
    world.begun.clear()
    world.kill_at.append(3)
    other = f"output_dir={tmp_path / 'killed'}"
    with pytest.raises(Killed):
        world.call("arms=spo", other)
    world.kill_at.clear()
    assert world.call("arms=spo", other) == 0
    assert rows(world) == whole
    assert len(world.begun) == len(values)  # none is lost and none repeated


def test_a_failed_trial_is_one_and_the_next_best_replaces_a_failed_re_score(world):
    world.fails.update({"grpo-t000-s7"})
    assert world.call("arms=grpo") == 0
    states = [row["state"] for row in rows(world, "grpo") if row["run"] == "trial"]
    assert states.count("fail") == 1 and len(states) == 6
    first = next(row["trial"] for row in rows(world, "grpo") if row["run"] == "rescore")
    world.fails.add(f"grpo-t{int(first):03}-s8-again")
    assert world.call("arms=grpo") == 0
    whole = [row for row in rows(world, "grpo") if row["run"] == "rescore"]
    complete = [row["trial"] for row in whole if row["state"] == "complete"]
    assert len({trial for trial in complete if complete.count(trial) == 2}) == 2


def test_trials_of_other_settings_do_not_mix(world):
    world.call("arms=spo")
    with pytest.raises(UserError, match="other settings; choose another output_dir"):
        world.call("arms=spo", "train.prompts=8")


@pytest.mark.parametrize(
    ("override", "match"),
    [
        ("eval.split=choose", r"eval\.split=choose"),
        ("eval.samples=5", r"eval\.samples=5"),
        ("eval.every=0", r"eval\.every=0"),
        ("algo.nothing=1", "arm spo: .*algo.nothing"),
    ],
)
def test_trials_that_cannot_be_scored_are_refused(world, override, match):
    with pytest.raises(UserError, match=match):
        world.call(override)


def test_values_are_the_same_for_every_arm_and_by_number_alone():
    def draw(number, before):
        study = optuna.create_study(direction="maximize")
        for _ in range(before):
            study.tell(study.ask(), 1.0)
        study.sampler = sampler(7, number, 3)
        trial = study.ask()
        return Range(1e-5, 1e-2, log=True).suggest(trial, "algo.learning_rate")

    assert draw(1, 0) == draw(1, 2) and draw(1, 0) != draw(2, 0)


@pytest.mark.parametrize("file", sorted(SPACES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_search_space_has_three_keys_and_can_be_drawn_from(file):
    space = read_space("x", file.stem)
    assert len(space) == 3
    trial = optuna.create_study().ask()
    for key, each in space.items():
        value = each.suggest(trial, key)
        assert each.place(value) and float(f"{value:.4g}") == value if not each.choices else True


def test_where_a_value_stands():
    wide = Range(0.01, 100, log=True, zero=True)
    assert wide.place(0.02).startswith("at the low edge") and wide.place(0) == "0 is allowed"
    assert wide.place(10) == "25% of 0.01 to 100 from the high edge"
    assert Range(choices=["a", "b"]).place("a") == "a choice"


@pytest.mark.parametrize("text", ["{low: 2, high: 1}", "{low: 0, high: 1, log: true}", "{lo: 1}"])
def test_a_range_that_is_none_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "SPACES", tmp_path)
    (tmp_path / "spo.yaml").write_text(f"algo.beta: {text}")
    with pytest.raises(UserError, match=r"algo\.beta"):
        read_space("spo")


def test_the_expected_best_by_counting_every_draw():
    scores = np.array([0.3, 0.1, 0.7, 0.2, 0.2])
    draws = (itertools.combinations(scores, n) for n in range(1, 6))
    counted = [np.mean([max(draw) for draw in of_size]) for of_size in draws]
    assert tuning.expected_best(scores) == pytest.approx(counted)
    assert tuning.expected_best(np.stack([scores, scores]))[1] == pytest.approx(counted)
