"""Tuning: no trial is lost and none done twice, whatever ends it; alike for every algorithm."""

import csv
import json
from pathlib import Path

import pytest
import yaml

from experiments.config.composition import config_of
from experiments.errors import UserError
from experiments.studies import tuning_files
from experiments.studies.jobs import End
from experiments.studies.study import Arm, Study, Tuning
from experiments.studies.tuning_files import Range, read_space, write_results

optuna = pytest.importorskip("optuna")

from experiments.studies.cli import MISUSED  # noqa: E402
from experiments.studies.tune import Tuner, main  # noqa: E402
from tests.experiments.studies.commands import start, wait_for  # noqa: E402

SPACE = {"algo.learning_rate": Range(1e-5, 1e-2, True), "algo.kl": Range(choices=["k1", "k3"])}
STUDY = Study("q", [0], {"grpo": Arm(["algo=grpo"])}, "s", tuning=Tuning(["steps=2"], 7))


def tuner(folder, trials=6):
    return Tuner(STUDY, "grpo", trials, [], folder / "trials.sqlite")


def test_trials_are_proposed_once_and_taken_up_after_a_kill(tmp_path):
    first = tuner(tmp_path)
    jobs = first.begin(SPACE, 2)
    first.tell(jobs[0], End("finished", Path("x"), None, 0.25))
    jobs.append(first.ask())
    del first  # killed: two trials were going on

    second = tuner(tmp_path)
    taken_up = second.begin(SPACE, 2)
    assert [job.overrides for job in taken_up] == [job.overrides for job in jobs[1:]]
    assert [job.label for job in taken_up] == ["grpo-s7-t001", "grpo-s7-t002"]
    known = list(taken_up)
    for score, job in enumerate(known):
        second.tell(job, End("finished", Path("x"), None, score / 10))
        if second.left():
            known.append(second.ask())
    rows = second.table()
    assert [row["trial"] for row in rows] == list(range(6))
    assert {row["state"] for row in rows} == {"complete"}
    assert tuner(tmp_path).begin(SPACE, 2) == []


def test_the_first_values_are_the_same_for_every_algorithm_and_on_every_start(tmp_path):
    a, b = (tuner(tmp_path / name) for name in "ab")
    assert [j.overrides for j in a.begin(SPACE, 3)] == [j.overrides for j in b.begin(SPACE, 3)]


def test_what_ppo_at_its_best_needs_can_be_tuned(tmp_path):
    space = {
        "algo.critic_learning_rate": Range(1e-5, 1e-2, True),
        "algo.lam": Range(choices=[0.95, 1.0]),
        "algo.critic": Range(choices=["separate", "none"]),
        "train.epochs": Range(choices=[1, 4]),
        "train.minibatches": Range(choices=[4]),
    }
    study = Study("q", [0], {"ppo": Arm(["algo=ppo"])}, "s", tuning=Tuning(["steps=2"], 7))
    jobs = Tuner(study, "ppo", 6, [], tmp_path / "trials.sqlite").begin(space, 6)
    configs = [config_of(job.overrides) for job in jobs]
    assert len({config.algo.critic_rate for config in configs}) == 6
    assert {config.algo.critic for config in configs} == {"separate", "none"}
    assert {config.algo.lam for config in configs} == {0.95, 1.0}
    assert {(c.train.epochs, c.train.minibatches) for c in configs} == {(1, 4), (4, 4)}


def test_a_trial_that_failed_is_one_and_never_wins(tmp_path):
    held = tuner(tmp_path, trials=2)
    one, two = held.begin(SPACE, 2)
    held.tell(one, End("failed", None, "diverged"))
    held.tell(two, End("finished", Path("x"), None, 0.1))
    assert [row["state"] for row in held.table()] == ["fail", "complete"]
    assert held.left() == 0


def test_trials_of_other_settings_are_not_mixed(tmp_path):
    tuner(tmp_path).begin(SPACE, 1)
    with pytest.raises(UserError, match="choose another output_dir"):
        Tuner(STUDY, "grpo", 6, ["train.lag=1"], tmp_path / "trials.sqlite").begin(SPACE, 1)


def test_the_winner_becomes_an_experiment_beside_the_table(tmp_path):
    (tmp_path / "s.yaml").write_text(FILE)
    own = f"{tmp_path}/s.yaml"
    row = {"trial": 0, "state": "complete", "pass@1": 0.25, "algo.learning_rate": 1e-3}
    rows = [row, row | {"trial": 1, "pass@1": 0.5, "algo.learning_rate": 1.234e-4}]
    rows.append(row | {"trial": 2, "state": "fail", "pass@1": None})
    space = {"algo.learning_rate": Range(1e-5, 1e-2, True)}
    arm = Arm(["algo=spo", "train.offline_share=0.5"])
    study = Study("q", [0], {"half": arm}, "study-s", tuning=Tuning(["steps=4"], 7))
    said = write_results(own, "half", study, config_of(["algo=spo"]), rows, space)
    assert "best of 3 trials: algo.learning_rate=0.0001234, pass@1 0.500" in said
    assert len((tmp_path / "tuned" / "s-half.csv").read_text().splitlines()) == 4
    text = (tmp_path / "tuned" / "tuned_s_half.yaml").read_text()
    held = yaml.safe_load(text)
    assert text.startswith("# @package _global_\n# python run.py experiment=tuned_s_half\n")
    assert (held["algo"], held["train"]) == ({"learning_rate": 1.234e-4}, {"offline_share": 0.5})
    assert held["defaults"] == [{"override /algo": "spo"}]
    assert held["tuned"] == "3 trials (steps=4), table tuned/s-half.csv"


@pytest.mark.parametrize(
    "file", sorted(tuning_files.FOLDER.glob("*.yaml")), ids=lambda file: file.stem
)
def test_what_is_looked_through_can_be_set_and_holds_the_default(file):
    algo = "gspo" if file.stem == "_default" else file.stem
    space = read_space(algo)
    for key, one in space.items():
        for value in one.choices or (one.low, one.high):
            config_of([f"algo={algo}", f"{key}={value}"])
        default = config_of([f"algo={algo}"])
        for part in key.split("."):
            default = getattr(default, part)
        assert default in one.choices if one.choices else one.low <= default <= one.high


MISTAKES = {
    "no tuning": (["study=atlas", "algo=spo", "trials=2"], "no `tuning`"),
    "no such arm": (["study=mini", "algo=sop", "trials=2"], "algo=sop: choose one of sft, spo"),
    "after another": (["study=mini", "algo=spo_after_sft", "trials=2"], "choose one of sft"),
    "no trials": (["study=mini", "algo=spo"], "trials=... is missing"),
    "half a trial": (["algo=spo", "trials=2.5"], "trials='2.5'; it takes a whole number"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake, tmp_path, capsys, monkeypatch):
    arguments, words = MISTAKES[mistake]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("experiments.studies.cli.exit_on_interrupt", lambda: None)
    assert main(arguments) == MISUSED
    told = capsys.readouterr().err
    assert told.startswith("error: ") and told.count("\n") == 1 and words in told
    assert list(tmp_path.iterdir()) == []


FILE = """
question: whether it goes on
seeds: [0]
overrides: [task=mini, eval.samples=2, "eval.k=[1]", train.prompts=2, train.group_size=2,
  task.train_problems=4, task.tune_problems=2, task.choose_problems=2,
  task.test_problems=2, sandbox=embedded, sandbox.workers=1, train.checkpoint_every=1]
arms:
  grpo: {overrides: [algo=grpo]}
tuning: {overrides: [steps=4, eval.split=tune, eval.every=0], seed: 1000}
"""


@pytest.mark.slow
def test_killed_in_the_middle_and_started_again(tmp_path):
    (tmp_path / "s.yaml").write_text(FILE)
    runs = tmp_path / "out" / "study-s-tuning"
    killed = start("tune", tmp_path, "algo=grpo", "trials=4")
    wait_for(
        lambda: (
            len(list(runs.glob("*/metrics.parquet"))) >= 1
            and len(list(runs.glob("*/metrics.jsonl"))) >= 1
        ),
        killed,
    )
    killed.kill()
    killed.wait()
    last = start("tune", tmp_path, "algo=grpo", "trials=4")
    said = last.communicate(timeout=900)[0]
    assert last.returncode == 0, said
    with (tmp_path / "tuned" / "s-grpo.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["trial"], row["state"]) for row in rows] == [
        (str(n), "complete") for n in range(4)
    ]
    folders = list(runs.glob("grpo-*"))
    assert len(folders) == 4  # a run for each trial and no more
    infos = [json.loads((folder / "run.json").read_text()) for folder in folders]
    assert all(info["status"] == "finished" for info in infos)
    assert any(info["resumed"] for info in infos)
    winner = (tmp_path / "tuned" / "tuned_s_grpo.yaml").read_text()
    assert "override /algo: grpo" in winner and "learning_rate: " in winner
