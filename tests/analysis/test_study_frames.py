"""A study in Python: the cells of the notebook, and what has no difference."""

import ast
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis import open_study
from analysis.runs import RunError

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs/notebooks/front.py"


@pytest.fixture
def defined(monkeypatch):
    """What the notebook's cells define; without marimo, which adds texts alone."""
    monkeypatch.chdir(ROOT)
    if find_spec("marimo"):
        return runpy.run_path(str(NOTEBOOK))["app"].run()[1]
    monkeypatch.setitem(sys.modules, "marimo", SimpleNamespace(md=str))
    found = {}
    for cell in ast.parse(NOTEBOOK.read_text()).body:
        if isinstance(cell, ast.FunctionDef):
            lines = [line for line in cell.body if not isinstance(line, ast.Return)]
            exec(compile(ast.Module(lines, []), str(NOTEBOOK), "exec"), found)
    return found


def test_the_notebook_goes_from_counts_to_the_front(defined):
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
    make_run(tmp_path / "b", config={"name": "another"})
    with pytest.raises(RunError, match="another, compare"):
        open_study(tmp_path)
