"""A study in Python: the cells of the notebook, and what has no difference."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from analysis import export, open_study
from analysis.runs import RunError

ROOT = Path(__file__).parents[2]
CELL = re.compile(r"```python \{\.marimo\}\n(.*?)```", re.S)


def test_the_notebook_goes_from_counts_to_the_front(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(sys.modules, "marimo", ModuleType("marimo"))  # shows texts alone
    defined: dict = {}
    for cell in CELL.findall(Path("docs/notebooks/front.md").read_text()):
        exec(cell, defined)
    by_hand, pairs, study = (defined[name] for name in ("by_arm", "pairs", "study"))
    for metric, a, b in pairs.index[:6]:
        gap = by_hand.loc[a, metric] - by_hand.loc[b, metric]
        assert pairs.loc[(metric, a, b), "difference"] == pytest.approx(gap)
    drawn = defined["front"]._repr_html_()
    assert all(f">{arm}</text>" in drawn for arm in defined["arms"])
    assert study.training.groupby(["arm", "seed"]).size().eq(200).all()
    for of in (("spo", "gpo", "pass@1"), ("spo", "ppo", "pass@7")):
        with pytest.raises(ValueError, match=r"arms: .*ppo.*; at: pass@1"):
            study.paired(*of)


def test_a_folder_of_runs_is_a_study_if_their_names_are_one(make_run, tmp_path):
    for algo in ("spo", "ppo"):
        make_run(tmp_path / "a", algo)
    assert open_study(tmp_path / "a").arms == ["ppo", "spo"]
    assert export.main([f"runs={tmp_path / 'a'}", f"out={tmp_path / 'rows.csv'}"]) == 0
    counts = open_study(tmp_path / "a").counts
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "rows.csv"), counts, check_dtype=False)
    make_run(tmp_path / "b", config={"name": "another"})
    with pytest.raises(RunError, match="another, compare"):
        open_study(tmp_path)


def test_an_evaluation_becomes_a_log_that_inspect_ai_reads(make_run, tmp_path, capsys):
    run, out = make_run(tmp_path, problems=3, samples=5), tmp_path / "one.eval"
    assert export.main([f"runs={run}", f"out={out}", "step=7"]) == 1
    assert "evaluated at [0, 10, 20]" in capsys.readouterr().err
    read_eval_log = pytest.importorskip("inspect_ai.log").read_eval_log
    assert export.main([f"runs={run}", f"out={out}"]) == 0
    log, evals = read_eval_log(str(out)), pd.read_parquet(run / "evals.parquet")
    assert log.eval.task == "mini step 20"
    last = evals[evals["step"] == 20].set_index(["problem", "sample"])
    assert len(log.samples) == len(last) == 15
    for sample in log.samples:
        row, score = last.loc[(sample.id, sample.epoch - 1)], sample.scores["verdict"]
        assert (score.answer, score.explanation) == (row["program"], row["verdict"])
        assert (score.value == "C") == (row["verdict"] == "ACCEPTED")
    assert (log.results.total_samples, log.results.completed_samples) == (15, 15)
    found = log.results.scores[0].metrics["pass@1"].value
    assert found == pytest.approx((last["verdict"] == "ACCEPTED").mean())
