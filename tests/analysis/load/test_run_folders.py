"""A study's runs are called by its arms' names, where these name each group."""

import json

import pytest

from analysis.load.groups import group_runs
from analysis.load.run_folders import load_run


@pytest.fixture
def study(tmp_path, make_run):
    """Two arms of two seeds, as a study leaves them, and its arms.json."""
    listed, runs = [], []
    for arm, beta in (("mild", 0.1), ("strict", 0.5)):
        for seed in (0, 1):
            path = make_run(tmp_path / f"{arm}{seed}", "spo", seed, config={"algo.beta": beta})
            runs.append(path.rename(tmp_path / f"{arm}-{path.name}"))
            listed.append({"arm": arm, "seed": seed, "run": str(runs[-1])})
    (tmp_path / "arms.json").write_text(json.dumps([*listed, {"arm": "mild", "run": None}]))
    return runs


def labels(runs):
    return [group.label for group in group_runs([load_run(path) for path in runs])]


def test_arms_are_the_labels(study):
    assert labels(study) == ["mild", "strict"]


def test_runs_of_which_some_are_no_arms_are_called_by_their_settings(study, tmp_path, make_run):
    other = make_run(tmp_path / "other", "spo", 0, config={"algo.beta": 0.7})
    assert labels([*study, other]) == ["spo beta=0.1", "spo beta=0.5", "spo beta=0.7"]


@pytest.mark.parametrize("text", ["", "[", "{}", '[{"arm": 1}]', "[1]", '[{"run": 3, "arm": "a"}]'])
def test_a_damaged_list_names_nobody(study, text):
    (study[0].parent / "arms.json").write_text(text)
    assert labels(study) == ["spo beta=0.1", "spo beta=0.5"]


def test_two_settings_in_one_arm_keep_their_settings(study):
    file = study[0].parent / "arms.json"
    file.write_text(file.read_text().replace('strict",', 'mild",'))
    assert labels(study) == ["spo beta=0.1", "spo beta=0.5"]
