"""task=starter: the rows of MBPP that a small model solved, in MBPP's own splits."""

import csv
from pathlib import Path

from envs.tasks import open_task
from envs.tasks.loaders.functions import mbpp_split
from tests.envs.tasks.dataset_rows import DATA, needs_data
from tests.experiments.compose import config

RATES = Path(__file__).parents[3] / "assets" / "starter" / "rates.csv"
PUBLISHED = {"train": "train", "tune": "validation", "choose": "validation", "test": "test"}


def rates(file=RATES):
    with file.open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def test_a_good_problem_was_solved_and_another_one_was_not():
    for row in rates().values():
        assert (row["good"] == "true") == (0 < int(row["accepted"]) <= int(row["samples"]))
        assert mbpp_split(row["name"]) is not None
        assert int(row["samples"]) >= (8 if mbpp_split(row["name"]) == "train" else 4) - 1


def test_supervised_training_has_all_of_train_and_the_same_problems_elsewhere():
    wide = rates(RATES.with_name("supervised.csv"))
    assert wide.keys() == rates().keys()
    for name, row in rates().items():
        all_of_it = mbpp_split(name) == "train"
        assert wide[name]["good"] == ("true" if all_of_it else row["good"])


@needs_data
def test_it_holds_exactly_the_good_problems_each_in_its_mbpp_split():
    task = open_task(config("task=starter", f"task.path={DATA / 'mbpp.jsonl'}").task)
    names = {split: {problem.name for problem in getattr(task, split)} for split in PUBLISHED}
    assert set.union(*names.values()) == {
        name for name, row in rates().items() if row["good"] == "true"
    }
    for split, there in names.items():
        assert there and {mbpp_split(name) for name in there} == {PUBLISHED[split]}
