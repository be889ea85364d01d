"""The command: what it refuses, and real runs that are killed and resumed."""

import csv
import json

import pytest

from experiments.errors import UserError
from experiments.studies.study import read

pytest.importorskip("optuna")

from experiments.studies.cli import MISUSED
from experiments.studies.tune import main, trial_config
from experiments.studies.tuning.tuner import Ranges
from tests.experiments.studies.commands import start, wait_for


def test_trials_start_from_the_defaults_and_not_from_an_earlier_winner():
    study = read("mini")
    spo = trial_config(study, "spo_half", [])
    assert (spo.algo.beta, spo.algo.learning_rate, spo.tuned) == (0.1, 3e-4, None)
    assert (spo.train.offline_share, spo.steps, spo.eval.samples) == (0.5, 40, 10)


REFUSED = {
    "the test problems": ("eval.split=test", "on the tune split alone"),
    "problems of designs": ("eval.split=choose", "on the tune split alone"),
    "no pass@10": ("eval.samples=9", "draw 10 or more"),
    "no curve": ("eval.every=0", "between its start and its end"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_trial_that_cannot_be_scored_is_refused(name):
    override, words = REFUSED[name]
    with pytest.raises(UserError, match=words):
        trial_config(read("mini"), "sft", [override])


MISTAKES = {
    "no tuning": (["study=atlas", "algo=spo", "trials=2"], "no `tuning`"),
    "no such arm": (["study=mini", "algo=sop"], "algo=sop: choose from sft, raft, spo, spo_sq"),
    "after another": (["study=mini", "algo=spo_after_sft"], "choose from sft"),
    "another's values": (["study=mini", "algo=ppo_lag10"], "choose from sft"),
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
overrides: [task=mini, eval.samples=10, train.prompts=2, train.group_size=2,
  task.train_problems=4, task.tune_problems=2, task.choose_problems=2,
  task.test_problems=2, sandbox=embedded, sandbox.workers=1, train.checkpoint_every=1]
arms:
  grpo: {overrides: [algo=grpo]}
tuning:
  overrides: [steps=4, eval.split=tune, eval.every=2]
  seed: 1000
  rescore_seeds: [1001, 1002]
"""


def test_some_of_the_arms_alone_widen_no_range(tmp_path, capsys, monkeypatch):
    """The others would get wider ranges from a round in which they had no say."""

    def run(tuner, jobs, workers, progress):
        """The highest rate is best, so that the winner stands at the edge."""
        for job in (jobs := list(jobs)):
            rate = next(o for o in job.overrides if o.startswith("algo.learning_rate="))
            tuner.tell(job, float(rate.partition("=")[2]), "a run")
            if tuner.left():
                jobs.append(tuner.ask())

    monkeypatch.setattr("experiments.studies.tune._run", run)
    monkeypatch.setattr(
        "experiments.studies.tune.edges",
        lambda values, space: dict.fromkeys(["algo.learning_rate"], "high"),
    )
    monkeypatch.setattr("experiments.studies.tune.raise_interrupts", lambda: None)
    monkeypatch.setattr("experiments.studies.cli.exit_on_interrupt", lambda: None)
    for name in ("write_results", "write_summary", "summary"):
        monkeypatch.setattr(f"experiments.studies.tuning.tuning_files.{name}", lambda *_: "")
    (tmp_path / "s.yaml").write_text(
        FILE.replace("tuning:", "  spo: {overrides: [algo=spo]}\ntuning:")
    )
    given = [f"study={tmp_path}/s.yaml", f"output_dir={tmp_path}", "trials=3", "jobs=1"]
    ranges = f"sqlite:///{tmp_path}/study-s-tuning/trials.sqlite"
    assert main([*given, "algo=spo"]) == 0
    assert "no range widens: only some of the arms were tuned" in capsys.readouterr().out
    assert Ranges(ranges).rounds == 0
    assert main(given) == 0
    assert Ranges(ranges).rounds == 1


@pytest.mark.slow
def test_killed_in_a_trial_and_in_a_re_score_and_started_again(tmp_path):
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
    killed = start("tune", tmp_path, "algo=grpo", "trials=4")
    wait_for(lambda: list(runs.glob("grpo-s1001-*/metrics.jsonl")), killed)  # a re-score
    killed.kill()
    killed.wait()
    last = start("tune", tmp_path, "algo=grpo", "trials=4")
    said = last.communicate(timeout=900)[0]
    assert last.returncode == 0, said
    with (tmp_path / "tuned" / "s-grpo.csv").open() as file:
        rows = list(csv.DictReader(file))
    trials = [row for row in rows if row["run"] == "trial"]
    assert [row["trial"] for row in trials] == [str(n) for n in range(len(trials))]
    assert len(trials) in (4, 5, 6, 7)  # a trial more for each widening
    assert {row["state"] for row in rows} == {"complete"}
    assert all(0 <= float(row["score"]) <= 1 for row in rows)
    # a process killed as it makes a run folder leaves an empty one
    folders = [file.parent for file in runs.glob("grpo-*/run.json")]
    assert len(folders) == len(rows)  # a run for each row and no more
    infos = [json.loads((folder / "run.json").read_text()) for folder in folders]
    assert all(info["status"] == "finished" for info in infos)
    assert any(info["resumed"] for info in infos)
    winner = (tmp_path / "tuned" / "tuned_s_grpo.yaml").read_text()
    assert "override /algo: grpo" in winner and "learning_rate: " in winner
