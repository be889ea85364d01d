from analysis.experiment import build_experiment
from analysis.runs import load_run


def test_an_experiment_has_its_own_k_and_notes(tmp_path, make_run):
    a = make_run(tmp_path / "a", "spo", 0, samples=6)
    b = make_run(tmp_path / "b", "spo", 0, config={"eval.k": [1, 20]})
    few, many = build_experiment("few", [load_run(a)]), build_experiment("many", [load_run(b)])
    assert (few.ks, many.ks) == ((1, 5), (1, 20))
    assert any("pass@10 is left out" in note for note in few.notes)
    assert not any("left out" in note for note in many.notes)


def test_a_run_without_an_evaluation_is_told_of_and_has_no_row(tmp_path, make_run):
    path = make_run(tmp_path, status="failed", info={"error": "OutOfMemory: 8 GB"})
    (path / "evals.parquet").unlink()
    experiment = build_experiment("mini", [load_run(path)])
    assert experiment.models == []
    assert any("OutOfMemory" in note for note in experiment.notes)
