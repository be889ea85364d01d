"""How groups were trained: what they share, what differs, all settings, a run made again."""

import pytest

from analysis.load.groups import group_runs
from analysis.load.hyperparameters import (
    COLUMNS,
    commands,
    hyperparameters,
    settings_table,
    shared_values,
)
from analysis.load.run_folders import load_run

TRAIN = {"train.minibatches": 1, "train.epochs": 1, "train.lag": 10, "train.temperature": 1.0}


@pytest.fixture
def groups(tmp_path, make_run):
    ppo = {"algo.learning_rate": 3e-4, "algo.critic_learning_rate": 1e-3, "algo.kl_coef": 0.0}
    runs = [
        make_run(tmp_path, "spo", 0, config=TRAIN | {"algo.learning_rate": 4e-4}),
        make_run(tmp_path, "spo", 1, config=TRAIN | {"algo.learning_rate": 4e-4}),
        make_run(tmp_path, "ppo", 0, config=TRAIN | ppo | {"algo.beta": None}),
    ]
    return group_runs([load_run(run) for run in runs])


def test_what_all_groups_share_is_named_once_and_the_rest_is_a_table(groups):
    shared, (heading, rows) = hyperparameters(groups)
    assert dict(shared) == {
        "steps": "20",
        "prompts × responses": "16 × 8",
        "minibatches × epochs": "1",
        "rollout policy": "lag 10",  # the same everywhere, and still on the page
        "temperature": "1",
    }
    assert heading == ["", "learning rate", "critic's learning rate", "β"]
    assert rows == [["ppo", "0.0003", "0.001", "–"], ["spo", "0.0004", "–", "0.1"]]


@pytest.mark.parametrize(
    ("title", "settings", "text"),
    [
        ("rollout policy", {"train.lag": 0, "train.sync_every": 1}, "fresh"),
        ("rollout policy", {"train.lag": 0, "train.sync_every": 4}, "synced every 4 batches"),
        ("rollout policy", {}, ""),
        ("learning rate", {"algo.learning_rate": 1e-6, "train.schedule": "constant"}, "1e-06"),
        (
            "learning rate",
            {"algo.learning_rate": 1e-6, "train.schedule": "linear"},
            "1e-06, linear",
        ),
        ("minibatches × epochs", {"train.minibatches": 4, "train.epochs": 2}, "4 × 2"),
        ("norm clipping", {"train.max_grad_norm": 1.0, "train.clip_quantile": None}, "at 1"),
        ("norm clipping", {"train.max_grad_norm": 1.0, "train.clip_quantile": 0.9}, "quantile 0.9"),
        ("norm clipping", {"train.max_grad_norm": None, "train.clip_quantile": None}, ""),
        ("others' programs", {"train.offline_share": 0.125}, "12.5 %"),
        ("KL weight", {"algo.kl_coef": 0.0}, ""),
        ("adapter", {"model.adapter": "none"}, ""),
        ("adapter", {"model.adapter": "lora"}, "lora"),
    ],
)
def test_each_is_said_as_one_says_it(title, settings, text):
    assert COLUMNS[title](settings) == text


def test_one_group_has_no_table(groups):
    shared, (_, rows) = hyperparameters(groups[1:])
    assert dict(shared)["β"] == "0.1"
    assert rows == []


def test_all_settings_are_in_the_table_and_what_is_shared_is_shared(groups):
    table = settings_table(groups).set_index(["group", "setting"])["value"]
    assert table["spo", "algo.beta"] == "0.1"
    assert table["ppo", "algo.critic_learning_rate"] == "0.001"
    common = dict(shared_values(groups))
    assert common["train.lag"] == "10"
    assert not {"algo.beta", "algo.learning_rate", "algo.critic_learning_rate"} & common.keys()
    assert all(
        table[label, key] == value for label in ("spo", "ppo") for key, value in common.items()
    )


def test_the_command_names_the_first_runs_folder(groups, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert commands(groups) == [
        ("ppo", "python run.py from=compare/ppo-0", "0123abc"),
        ("spo", "python run.py from=compare/spo-0", "0123abc"),
    ]
    monkeypatch.chdir("/")
    assert commands(groups)[0][1] == f"python run.py from={str(tmp_path).lstrip('/')}/compare/ppo-0"
