"""Groups of runs, their labels and their evaluated models."""

import pytest

from analysis.groups import LONGEST, common_ks, distinct_labels, evaluated_models, group_runs
from analysis.runs import load_run


def groups_of(*paths):
    return {group.label: group for group in group_runs([load_run(path) for path in paths])}


def test_runs_that_differ_in_seed_place_and_what_is_shown_are_one_group(tmp_path, make_run):
    a = make_run(tmp_path / "here", "spo", 0)
    config = {"logger": {"name": "wandb"}, "eval.k": [1, 4], "eval.kl_samples": 8}
    b = make_run(tmp_path / "there", "spo", 1, config=config)
    groups = groups_of(a, b)
    assert list(groups) == ["spo"]
    assert [run.seed for run in groups["spo"].runs] == [0, 1]


@pytest.mark.parametrize(
    ("change", "labels"),
    [
        ({}, ["spo data_hash=d4ta", "spo data_hash=other"]),
        ({"algo.beta": 0.5}, ["spo beta=0.1", "spo beta=0.5"]),
        ({"train.sync_every": 10}, ["spo sync_every=1", "spo sync_every=10"]),
        ({"eval.temperature": 1.0}, ["spo temperature=0.4", "spo temperature=1"]),
        ({"eval.turns": 3}, ["spo", "spo eval.turns=3"]),
        ({"algo.new": True}, ["spo", "spo new=true"]),
        ({"algo.beta": None}, ["spo beta=0.1", "spo beta=null"]),
    ],
)
def test_any_other_difference_separates_and_names_itself(tmp_path, make_run, change, labels):
    info = {} if change else {"data_hash": "other"}
    a = make_run(tmp_path / "a", "spo", 0)
    b = make_run(tmp_path / "b", "spo", 1, config=change, info=info)
    assert sorted(groups_of(a, b)) == labels


def test_seeds_that_learned_from_seeds_of_one_kind_are_one_group(tmp_path, make_run):
    def run(seed, whose):
        folder = f"outputs/first/{whose}-s{seed}-20260101-00000{seed}"
        config = {"replay.from_runs": [folder], "train.keep_samples": bool(seed)}
        return make_run(tmp_path / f"{whose}{seed}", "spo", seed, config=config)

    groups = groups_of(*(run(seed, whose) for seed in (0, 1) for whose in ("ppo", "grpo")))
    assert [len(group.runs) for group in groups.values()] == [2, 2]


def test_a_run_that_stopped_before_reading_its_data_stands_with_its_like(tmp_path, make_run):
    early = make_run(tmp_path / "a", "spo", 0, status="failed", info={"data_hash": None})
    (early / "evals.parquet").unlink()
    whole = make_run(tmp_path / "b", "spo", 1)
    group = groups_of(early, whole)["spo"]
    assert [run.seed for run in group.runs] == [0, 1]
    assert [run.seed for run in group.complete] == [1]
    assert group.settings["data_hash"] == "d4ta"


def test_a_run_without_an_evaluation_changes_no_label_of_the_others(tmp_path, make_run):
    good = make_run(tmp_path / "a", "spo", 0)
    other = make_run(tmp_path / "b", "spo", 1, status="failed", config={"model.name": "nochat"})
    (other / "evals.parquet").unlink()
    assert set(groups_of(good, other)) == {"spo", "spo name=nochat"}
    plain = make_run(tmp_path / "c", "spo", 1, status="failed")
    (plain / "evals.parquet").unlink()
    tuned = make_run(tmp_path / "d", "spo", 0, config={"algo.new": 1})
    assert set(groups_of(tuned, plain)) == {"spo", "spo (no evaluation)"}


def test_of_many_differences_the_fewest_that_tell_apart_are_named():
    variants = [
        {
            "engine.memory_share": 0.1 * i,
            "model.path": f"/data/models/a-rather-long-name-of-a-model-{i}/final",
            "train.micro_batch": 2**i,
            "train.prompts": 16 + i % 2,
            "train.sync_every": (1, 5, 20)[i // 2],
            "algo.learning_rate": (1e-4, 3e-4)[i % 2],
        }
        for i in range(6)
    ]
    labels = distinct_labels("grpo", variants)
    assert labels[0] == "grpo learning_rate=0.0001 sync_every=1"
    assert labels[5] == "grpo learning_rate=0.0003 sync_every=20"
    assert len(set(labels)) == 6
    for tail in ("", "/final"):  # long values are cut, and labels stay apart
        variants = [{"task.path": f"{'x' * 90}{i}{'y' * 90}{tail}"} for i in range(3)]
        labels = distinct_labels("spo", variants)
        assert len(set(labels)) == 3 and max(map(len, labels)) <= LONGEST


def bases_of(*paths):
    models = evaluated_models(group_runs([load_run(path) for path in paths]))
    return [model for model in models if model.is_base]


def test_another_model_has_another_base(tmp_path, make_run):
    a = make_run(tmp_path / "a", "spo", 0)
    b = make_run(tmp_path / "b", "ppo", 0, config={"model.name": "big", "eval.every": 20})
    models = evaluated_models(group_runs([load_run(a), load_run(b)]))
    assert [model.label for model in models] == ["base name=big", "base name=nano", "ppo", "spo"]


SANDBOX = {"name": "embedded", "strength": "namespaces"}
TRAINING = {"train.sync_every": 10, "eval.every": 20, "task.reward": {"low": -1.0}}
TRAINING |= {"model.adapter": "lora", "model.adapter_rank": 8}


@pytest.mark.parametrize(
    ("first", "second", "info", "bases"),
    [
        ({}, {"judge.time_factor": 3.0}, {}, 2),
        ({}, {}, {"judge_version": "2"}, 2),
        ({}, {}, {"sandbox": {"name": "docker", "strength": "a container"}}, 2),
        ({}, {"eval.temperature": 1.0}, {}, 2),
        ({}, {}, {"data_hash": "other"}, 2),
        ({}, TRAINING, {}, 1),
        ({"task.turns": 3}, {"task.turns": 1, "eval.turns": 3}, {}, 1),
        ({"task.turns": 3}, {"task.turns": 1}, {}, 2),
    ],
)
def test_bases_that_were_judged_or_sampled_otherwise_stay_apart(
    tmp_path, make_run, first, second, info, bases
):
    place, judged = {"sandbox": SANDBOX}, {"judge.time_factor": 2.0}
    a = make_run(tmp_path / "a", "spo", 0, config=judged | first, info=place)
    b = make_run(tmp_path / "b", "ppo", 1, config=judged | second, info=place | info)
    models = bases_of(a, b)
    assert len({model.label for model in models}) == len(models) == bases
    assert sorted(run.seed for model in models for run in model.runs) == [0, 1]


def test_a_models_folder_is_named_only_where_its_name_does_not_tell(tmp_path, make_run):
    def labels(name, **more):
        first = {"model.path": "models/a", "eval.temperature": 0.4}
        a = make_run(tmp_path / name / "a", "spo", 0, config=first)
        b = make_run(tmp_path / name / "b", "ppo", 0, config={"model.path": "models/b"} | more)
        return [model.label for model in bases_of(a, b)]

    assert labels("named", **{"model.name": "big"}) == ["base name=big", "base name=nano"]
    other = {"model.name": "big", "task.quality": "rates.csv"}
    assert labels("other", **other) == ["base name=big", "base name=nano"]
    # That they were sampled otherwise does not say that they are two models.
    model_labels = labels("unnamed", **{"eval.temperature": 1.0})
    assert all("path=models/" in label and "temperature=" in label for label in model_labels)


@pytest.mark.parametrize(
    ("configured", "samples", "ks", "left"),
    [
        ([[8, 2]], 20, (2, 8), None),
        ([None], 20, (1, 5, 10), None),
        ([[1, 5, 10]], 6, (1, 5), "pass@10 is left out: "),
        ([[1, 4, 16], [1, 4, 10]], 20, (1, 4), "pass@10 and pass@16 is left out: "),
        ([[1, 4, 16], [1, 4, 10], [8]], 20, (1,), "pass@1, pass@4, pass@8, pass@10 and pass@16 "),
    ],
)
def test_the_runs_say_which_k_and_those_in_common_are_shown(
    tmp_path, make_run, configured, samples, ks, left
):
    configs = [{"eval.k": one} if one else {} for one in configured]
    pairs = zip(("spo", "ppo", "grpo"), configs, strict=False)
    found = common_ks(
        [load_run(make_run(tmp_path, a, samples=samples, config=c)) for a, c in pairs]
    )
    assert found[0] == ks
    assert [note[: len(left)] for note in found[1]] == ([left] if left else [])
