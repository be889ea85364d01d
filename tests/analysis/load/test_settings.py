from analysis.load.groups import group_runs
from analysis.load.run_folders import load_run
from analysis.load.settings import differing_settings, shared_settings


def test_facts_are_words(tmp_path, make_run):
    left_out = {"accepts any valid answer": 1203, "no tests": 17}
    info = {
        "task": {"rows_read": 25000, "left_out": left_out, "decontaminated": []},
        "sandbox": {"name": "docker", "strength": "no network"},
        "hardware": {"machine": "x86_64", "cpus": 2, "gpu": None},
        "parameters": 770944,
        "train_problems": 9000,
        "eval_problems": 1000,
    }
    runs = [
        load_run(make_run(tmp_path, "spo", 0, info=info)),
        load_run(make_run(tmp_path, "spo", 1, info=info | {"judge_version": "2"})),
    ]
    assert dict(shared_settings(runs)) == {
        "model": "nano; 770,944 parameters",
        "problems": "mini, 9,000 for training, 1,000 for evaluation; 1,220 left out: "
        "accepts any valid answer 1,203, no tests 17",
        "evaluation": "20 samples per problem, temperature 0.4, top-p 0.95",
        "judge": "version 1, sandbox docker (no network) or version 2, sandbox docker (no network)",
        "machine": "machine x86_64, cpus 2",
    }


def test_further_temperatures_are_told_of_and_make_no_group(tmp_path, make_run):
    further = [{}, {"eval.further_temperatures": []}, {"eval.further_temperatures": [0.0, 1.0]}]
    runs = [
        load_run(make_run(tmp_path, "spo", seed, status="running", config=config))
        for seed, config in enumerate(further)
    ]
    (group,) = group_runs(runs)
    assert len(group.runs) == 3
    facts = [dict(shared_settings([run]))["evaluation"] for run in runs]
    assert facts[0] == facts[1]
    assert facts[2] == f"{facts[0]}, at the start and the end also temperature 0 and 1"


def test_an_algorithms_own_settings_are_compared_among_its_groups(tmp_path, make_run):
    runs = [
        make_run(tmp_path / "a", "spo", 0, config={"algo.beta": 0.1}),
        make_run(tmp_path / "b", "spo", 0, config={"algo.beta": 0.5, "train.sync_every": 10}),
        make_run(tmp_path / "c", "ppo", 0, config={"algo.lam": 1.0}),
    ]
    groups = group_runs([load_run(path) for path in runs])
    one, ten = "spo beta=0.1 sync_every=1", "spo beta=0.5 sync_every=10"
    assert differing_settings(groups) == [
        ("train.sync_every", [("1", ["ppo", one]), ("10", [ten])]),
        ("algo.beta", [("0.1", [one]), ("0.5", [ten])]),
    ]
