from analysis.load.groups import group_runs
from analysis.load.run_folders import load_run
from analysis.load.settings import differing_settings, shared_settings
from analysis.report.section import section


def test_an_experiment_has_its_own_k_and_notes(tmp_path, make_run):
    a = make_run(tmp_path / "a", "spo", 0, samples=6)
    b = make_run(tmp_path / "b", "spo", 0, config={"eval.k": [1, 20]})
    few, many = section("few", [load_run(a)]), section("many", [load_run(b)])
    assert (few.ks, many.ks) == ((1, 5), (1, 20))
    assert any("pass@10 is left out" in note for note in few.notes)
    assert not any("left out" in note for note in many.notes)


def test_a_run_without_an_evaluation_is_told_of_and_has_no_row(tmp_path, make_run):
    path = make_run(tmp_path, status="failed", info={"error": "OutOfMemory: 8 GB"})
    (path / "evals.parquet").unlink()
    found = section("mini", [load_run(path)])
    assert found.stages == []
    assert any("OutOfMemory" in note for note in found.notes)


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
        "problems": "mini, 9,000 to train on, 1,000 to evaluate; 1,220 left out: "
        "accepts any valid answer 1,203, no tests 17",
        "evaluation": "20 samples a problem, temperature 0.4, top-p 0.95",
        "judge": "version 1, sandbox docker (no network) or version 2, sandbox docker (no network)",
        "machine": "machine x86_64, cpus 2",
    }


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
