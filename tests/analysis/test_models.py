import pytest

from analysis.groups import common_ks, evaluated_models, group_runs
from analysis.runs import load_run


def bases_of(*paths):
    models = evaluated_models(group_runs([load_run(path) for path in paths]))
    return [model for model in models if model.is_base]


def test_another_model_has_another_base(tmp_path, make_run):
    a = make_run(tmp_path / "a", "spo", 0)
    b = make_run(tmp_path / "b", "ppo", 0, config={"model.name": "big", "eval.every": 20})
    models = evaluated_models(group_runs([load_run(a), load_run(b)]))
    assert [model.label for model in models] == ["base name=big", "base name=nano", "ppo", "spo"]


@pytest.mark.parametrize(
    ("config", "info"),
    [
        ({"judge.time_factor": 3.0}, {}),
        ({}, {"judge_version": "2"}),
        ({}, {"sandbox": {"name": "docker", "strength": "a container"}}),
        ({"eval.temperature": 1.0}, {}),
        ({}, {"data_hash": "other"}),
    ],
)
def test_bases_that_were_judged_or_sampled_otherwise_stay_apart(tmp_path, make_run, config, info):
    place = {"sandbox": {"name": "embedded", "strength": "namespaces"}}
    a = make_run(tmp_path / "a", "spo", 0, config={"judge.time_factor": 2.0}, info=place)
    changed = {"judge.time_factor": 2.0} | config
    b = make_run(tmp_path / "b", "ppo", 0, config=changed, info=place | info)
    models = bases_of(a, b)
    assert len(models) == 2
    assert models[0].label != models[1].label


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


def test_bases_are_one_where_only_training_differs(tmp_path, make_run):
    a = make_run(tmp_path / "a", "spo", 0)
    config = {"train.sync_every": 10, "eval.every": 20, "task.reward": {"low": -1.0}}
    config |= {"model.adapter": "lora", "model.adapter_rank": 8}
    b = make_run(tmp_path / "b", "ppo", 1, config=config)
    (base,) = bases_of(a, b)
    assert sorted(run.seed for run in base.runs) == [0, 1]


def test_turns_at_evaluation_only_have_the_base_of_turns_in_training(tmp_path, make_run):
    trained = make_run(tmp_path / "a", "spo", 0, config={"task.turns": 3})
    evaluated = {"task.turns": 1, "eval.turns": 3}
    only = make_run(tmp_path / "b", "ppo", 0, config=evaluated)
    single = make_run(tmp_path / "c", "grpo", 0, config={"task.turns": 1})
    assert len(bases_of(trained, only)) == 1
    assert len(bases_of(trained, single)) == 2


def test_the_run_says_which_k(tmp_path, make_run):
    run = load_run(make_run(tmp_path, config={"eval.k": [8, 2]}))
    assert common_ks([run]) == ((2, 8), [])
    assert common_ks([load_run(make_run(tmp_path / "old"))]) == ((1, 5, 10), [])


def test_k_beyond_the_samples_is_left_out_with_a_note(tmp_path, make_run):
    run = load_run(make_run(tmp_path, samples=6, config={"eval.k": [1, 5, 10]}))
    ks, (note,) = common_ks([run])
    assert ks == (1, 5)
    assert note.startswith("pass@10 is left out: ")


def test_of_different_k_the_common_ones_are_shown(tmp_path, make_run):
    configured = {"spo": [1, 4, 16], "ppo": [1, 4, 10], "grpo": [8]}
    runs = {
        algo: load_run(make_run(tmp_path, algo, config={"eval.k": ks}))
        for algo, ks in configured.items()
    }
    ks, (note,) = common_ks([runs["spo"], runs["ppo"]])
    assert ks == (1, 4)
    assert note.startswith("pass@10 and pass@16 is left out: ")
    assert common_ks(list(runs.values()))[0] == (1,)
