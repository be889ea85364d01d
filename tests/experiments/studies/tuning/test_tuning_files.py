"""The table, the winner's experiment, and the summary say how a winner was found."""

import csv
import json

import pytest
import yaml

from experiments.config.composition import config_of
from experiments.studies.study import Arm, Study, Tuning
from experiments.studies.tuning.search_space import Range
from experiments.studies.tuning.tuning_files import summary, write_results, write_summary

optuna = pytest.importorskip("optuna")

from experiments.studies.tuning.tuner import Ranges, Tuner  # noqa: E402

SPACE = {
    "algo.learning_rate": Range(1e-5, 1e-2, log=True),
    "algo.beta": Range(0.01, 3.0, log=True),
}
ARMS = {"half": Arm(["experiment=tuned_s_half", "algo=spo", "train.offline_share=0.5"])}
SEEDS = [8, 9, 10]
STUDY = Study("q", [0], ARMS, "study-s", tuning=Tuning(["steps=4"], 7, SEEDS))


def tuned(tmp_path, scores, rescores):
    """An arm with these trials' scores, and of each of the best three on three seeds."""
    storage = optuna.storages.InMemoryStorage()
    held, ranges = Tuner(STUDY, "half", SPACE, len(scores), [], storage), Ranges(storage)
    (tmp_path / "run.json").write_text(json.dumps({"commit": "0123abc"}))
    jobs = held.begin(ranges, len(scores))
    for job, score in zip(jobs, scores, strict=True):
        held.tell(job, score, str(tmp_path))
    for job in held.rescores_left():
        at = SEEDS.index(job.seed)
        held.tell(job, rescores[held.numbers[job]][at], str(tmp_path))
    return held, ranges


def test_the_winner_of_the_re_scores_becomes_an_experiment_beside_the_table(tmp_path):
    rescores = {1: [0.5, 0.5, 0.5], 2: [0.6, 0.62, 0.58], 3: [0.59, 0.61, 0.6]}
    held, ranges = tuned(tmp_path, [None, 0.9, 0.8, 0.7], rescores)
    (tmp_path / "s.yaml").touch()
    said = write_results(f"{tmp_path}/s.yaml", STUDY, held, config_of(["algo=spo"]))
    assert said == (f"half: {tmp_path}/tuned/s-half.csv, {tmp_path}/tuned/tuned_s_half.yaml")
    with (tmp_path / "tuned" / "s-half.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["run"] for row in rows] == ["trial"] * 4 + ["rescore"] * 9
    assert [(row["trial"], row["seed"], row["state"]) for row in rows[:2]] == [
        ("0", "7", "fail"),
        ("1", "7", "complete"),
    ]
    assert [(row["trial"], row["seed"]) for row in rows[7:10]] == [
        ("2", "8"),
        ("2", "9"),
        ("2", "10"),
    ]
    text = (tmp_path / "tuned" / "tuned_s_half.yaml").read_text()
    made, row = yaml.safe_load(text), rows[2]
    assert made["algo"] == {
        "learning_rate": float(row["algo.learning_rate"]),
        "beta": float(row["algo.beta"]),
    }
    assert made["train"] == {"offline_share": 0.5}
    assert made["defaults"] == [{"override /algo": "spo"}]
    assert made["tuned"] == (
        "4 trials (steps=4), 3 of the best on 3 fresh seeds, table tuned/s-half.csv"
    )
    assert text.startswith("# @package _global_\n# python run.py experiment=tuned_s_half\n")
    for words in (
        "# Trial 2 of 4, by `python -m experiments.studies.tune study=s`, at commit 0123abc.\n",
        "(area under (pass@1 + pass@10)/2)",
        ": 0.8000.\n",
        "0.6000 (seed 8), 0.6200 (seed 9), 0.5800 (seed 10); mean 0.6000 ± 0.0115.\n",
        "# Within one standard error: trial 3 (0.6000 ± 0.0058).\n",
    ):
        assert words in text
    for key, values in SPACE.items():
        assert f"% of {values.low:g} to {values.high:g} from the " in text.partition(key)[2]
    table = write_summary(f"{tmp_path}/s.yaml", [held], ranges)
    assert (tmp_path / "tuned" / "s.md").read_text() == table + "\n"
    assert "0.6000 ± 0.0115" in table and "trial 3" in table


def test_the_summary_says_what_widened_and_what_is_still_at_an_edge(tmp_path):
    held, ranges = tuned(tmp_path, [0.9], {0: [0.5, 0.5, 0.5]})
    ranges.widen({"half": {"algo.beta": "low"}})
    held.open(ranges)
    rate, beta = held.ranking()[0].values.values()
    held.space = {
        "algo.learning_rate": Range(rate, 1.0, log=True),
        "algo.beta": Range(beta / 10, beta * 10, log=True),
    }
    said = summary([held], ranges).splitlines()
    assert "Widened: algo.beta, low edge (winner of half)" in said
    assert said[-1] == "Still at an edge: half, algo.learning_rate"
    assert "0% of" in said[4]


def test_without_a_whole_re_score_there_is_no_winner(tmp_path):
    held, ranges = tuned(tmp_path, [0.9], {0: [0.5, None, 0.5]})
    said = write_results(f"{tmp_path}/s.yaml", STUDY, held, config_of(["algo=spo"]))
    assert said.startswith("half: no trial and all its re-scores finished")
    assert not list((tmp_path / "tuned").glob("*.yaml"))
    assert "Left out" not in summary([held], ranges)  # it runs once more
    (job,) = held.rescores_left()
    held.tell(job, None)
    said = summary([held], ranges)
    assert "Left out: half, trial 0: a re-score failed 2 times" in said.splitlines()
    assert said.endswith("No winner stands at an edge")
    assert "half" in summary([held], ranges)
