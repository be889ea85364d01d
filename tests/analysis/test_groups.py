import pandas as pd
import pytest

from analysis.groups import LONGEST, distinct_labels, group_runs
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
        ({"algo.beta": 0.5}, ["spo beta=0.1", "spo beta=0.5"]),
        ({"train.sync_every": 10}, ["spo sync_every=1", "spo sync_every=10"]),
        ({"eval.temperature": 1.0}, ["spo temperature=0.4", "spo temperature=1"]),
        ({"eval.turns": 3}, ["spo", "spo eval.turns=3"]),
        ({"algo.new": True}, ["spo", "spo new=true"]),
        ({"algo.beta": None}, ["spo beta=0.1", "spo beta=null"]),
    ],
)
def test_any_other_difference_separates_and_names_itself(tmp_path, make_run, change, labels):
    a, b = make_run(tmp_path / "a", "spo", 0), make_run(tmp_path / "b", "spo", 1, config=change)
    assert sorted(groups_of(a, b)) == labels


def test_seeds_that_learned_from_seeds_of_one_kind_are_one_group(tmp_path, make_run):
    def run(seed, whose):
        folder = f"outputs/first/{whose}-s{seed}-20260101-00000{seed}"
        config = {"replay.from_runs": [folder], "train.keep_samples": bool(seed)}
        return make_run(tmp_path / f"{whose}{seed}", "spo", seed, config=config)

    groups = groups_of(*(run(seed, whose) for seed in (0, 1) for whose in ("ppo", "grpo")))
    assert [len(group.runs) for group in groups.values()] == [2, 2]


def test_another_data_set_is_another_group(tmp_path, make_run):
    a = make_run(tmp_path / "a", "spo", 0)
    b = make_run(tmp_path / "b", "spo", 1, info={"data_hash": "other"})
    assert sorted(groups_of(a, b)) == ["spo data_hash=d4ta", "spo data_hash=other"]


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


def test_of_two_runs_with_one_seed_the_one_that_got_further_counts(tmp_path, make_run):
    broken = make_run(tmp_path / "a", "spo", 0, status="interrupted")
    (broken / "evals.parquet").unlink()
    whole = make_run(tmp_path / "b", "spo", 0, info={"started": "2026-11-19T10:00:00+00:00"})
    group = groups_of(broken, whole)["spo"]
    assert [run.path for run in group.runs] == [whole.resolve()]
    assert [run.path for run in group.repeats] == [broken.resolve()]


def test_a_run_that_stopped_early_is_not_averaged_at_the_end(tmp_path, make_run):
    whole = make_run(tmp_path, "spo", 0)
    early = make_run(tmp_path, "spo", 1, status="interrupted")
    evals = pd.read_parquet(early / "evals.parquet")
    evals[evals["step"] < 20].to_parquet(early / "evals.parquet")
    group = groups_of(whole, early)["spo"]
    assert group.last_step == 20
    assert [run.seed for run in group.complete] == [0]


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


@pytest.mark.parametrize("tail", ["", "/final"])
def test_long_values_are_cut_and_labels_stay_apart(tail):
    variants = [{"task.path": f"{'x' * 90}{i}{'y' * 90}{tail}"} for i in range(3)]
    labels = distinct_labels("spo", variants)
    assert len(set(labels)) == 3
    assert max(map(len, labels)) <= LONGEST
