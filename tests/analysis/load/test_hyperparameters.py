"""How groups were trained: what they share, what differs, all settings, a run made again."""

import json

import pytest

from analysis.groups import group_runs
from analysis.runs import load_run
from analysis.settings import (
    COLUMNS,
    commands,
    descriptions,
    hyperparameters,
    settings_table,
    shared_values,
)

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
        "starts from": "base",
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
    assert COLUMNS[title].describe(settings) == text


@pytest.fixture
def arms(tmp_path, make_run):
    """A study's arms, one run each: supervised training, three after it, and one beside it."""
    trained = f"{tmp_path}/compare/sft-0/checkpoints/final"
    elsewhere = f"{tmp_path}/elsewhere/"
    after = {"model.path": trained, "model.name": "nano-after-sft"}
    spo = {"algo.loss": "squared", "algo.beta": 0.3, "algo.slope_bound": 1.0, "train.lag": 0}
    configs = {
        "sft": {"model.path": "assets/nano", "train.offline_share": 1.0},
        "spo": after | spo,
        "spo_lag10": after | spo | {"algo.loss": "cross_entropy", "train.lag": 10},
        "ppo_v0": {
            "model.path": elsewhere + "sft-s0-20261126-214737/checkpoints/final",
            "algo.beta": None,
            "algo.critic": "none",
            "train.reset": False,
        },
        "grpo_old": {
            "model.path": "assets/nano",
            "replay.from_runs": [elsewhere + "spo-s0-20261126-214737"],
            "replay.frozen": True,
            "train.reset": True,
        },
    }
    runs = []
    for arm, config in configs.items():
        algo = arm.partition("_")[0]
        path = make_run(tmp_path, arm, config={"algo.name": algo, **config}, info={"algo": algo})
        runs.append({"arm": arm, "run": path.name})
    (tmp_path / "compare" / "arms.json").write_text(json.dumps(runs))
    return group_runs([load_run(tmp_path / "compare" / run["run"]) for run in runs])


def test_a_name_is_described_by_what_differs_most_telling_first(arms):
    assert dict(descriptions(arms)) == {
        "sft": "sft; starts from base; others' programs 100 %; β 0.1",
        "spo": "spo; starts from sft; loss=squared; β 0.3",
        "spo_lag10": "spo; starts from sft; rollout policy lag 10; loss=cross_entropy; β 0.3",
        "ppo_v0": "ppo; starts from elsewhere/sft",
        "grpo_old": "grpo; starts from base; recorded responses of elsewhere/spo, frozen batches; "
        "reset=true; β 0.1",
    }


def test_where_weights_come_from_is_a_column(arms):
    _, (heading, rows) = hyperparameters(arms)
    place = heading.index("starts from")
    assert {row[0]: row[place] for row in rows} == {
        "sft": "base", "spo": "sft", "spo_lag10": "sft",
        "ppo_v0": "elsewhere/sft", "grpo_old": "base",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ppo", "said"),
    [
        ({"model.name": "nano_5m"}, {"spo": "base nano", "ppo": "base nano_5m"}),
        ({"model.path": "b/nano"}, {"spo": "base a/nano", "ppo": "base b/nano"}),
    ],
)
def test_several_bases_are_told_apart_by_name_or_path(ppo, said, tmp_path, make_run):
    configs = {"spo": {"model.path": "a/nano"}, "ppo": {"model.path": "a/nano"} | ppo}
    runs = [make_run(tmp_path, algo, config=config) for algo, config in configs.items()]
    lines = dict(descriptions(group_runs([load_run(run) for run in runs])))
    assert lines == {algo: f"{algo}; starts from {base}" for algo, base in said.items()}


def test_names_of_algorithms_alone_need_no_description(tmp_path, make_run):
    runs = [load_run(make_run(tmp_path, algo)) for algo in ("spo", "ppo")]
    assert descriptions(group_runs(runs)) == []


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
