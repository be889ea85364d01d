import re

import pandas as pd
import pytest

from analysis.experiment import build_experiment
from analysis.report import main
from analysis.run_change import MOST_NAMED, single_run
from analysis.runs import load_run


@pytest.fixture
def path(tmp_path, make_run):
    return make_run(tmp_path / "outputs", problems=40, samples=10, skill=5.0)


def test_a_run_says_what_it_learnt_and_spent(path):
    run = load_run(path)
    shown = single_run(build_experiment("mini", [run]))
    solved = {
        step: set(part.loc[part["verdict"] == "ACCEPTED", "problem"])
        for step, part in run.evals.groupby("step")
    }
    (gained, _, won), (lost, _, gone) = shown["moved"]
    assert (gained, lost) == ("Gained", "Lost")
    assert {name for name, _ in won} == solved[20] - solved[0] and len(won) > 3
    assert {name for name, _ in gone} == solved[0] - solved[20]
    assert re.fullmatch(r"0 → \d+ of 10", won[0][1])
    rows = shown["passes"][1]
    assert [row[0] for row in rows] == ["pass@1", "pass@5", "pass@10"]
    assert all(re.fullmatch(r"\+0\.\d{3} \[.+, .+\]", cell) for row in rows for cell in row[3:])
    spent = dict(shown["spent"])
    assert spent["judged programs"] == "2,560" and spent["per step"].endswith(" s")
    assert "generation 12 s" in spent["training"]


def test_evaluations_of_different_sizes_say_both(path, tmp_path):
    evals = pd.read_parquet(path / "evals.parquet")
    evals[(evals["step"] > 0) | (evals["sample"] < 5)].to_parquet(path / "evals.parquet")
    shown = single_run(build_experiment("mini", [load_run(path)]))
    assert (shown["samples_before"], shown["samples_after"]) == (5, 10)
    assert re.fullmatch(r"0 of 5 → \d+ of 10", shown["moved"][0][2][0][1])
    assert main([f"runs={path}", f"out={tmp_path / 'report'}"]) == 0
    page = (tmp_path / "report" / "report.html").read_text()
    assert re.search(r"an accepted program among 5; after step 20, \d+ have one among 10\.", page)


def test_several_runs_or_a_run_without_a_base_have_no_such_page(path, make_run, tmp_path):
    other = make_run(tmp_path / "outputs", seed=1, problems=40, samples=10)
    runs = [load_run(one) for one in (path, other)]
    assert single_run(build_experiment("mini", runs)) is None
    evals = pd.read_parquet(path / "evals.parquet")
    evals[evals["step"] > 0].to_parquet(path / "evals.parquet")
    assert single_run(build_experiment("mini", [load_run(path)])) is None


def test_its_page_links_each_problem_to_its_programs(path, tmp_path):
    assert main([f"runs={path}", f"out={tmp_path / 'report'}"]) == 0
    page = (tmp_path / "report" / "report.html").read_text()
    assert "What did this run learn?" in page and "Which algorithm should" not in page
    assert "The answer" not in page and "At equal budget" not in page
    named = re.findall(r'<a href="#problem=([^"]+)">', page)
    assert len(named) == len(set(named)) > MOST_NAMED
    assert all(re.fullmatch(r"mini/test/\d{4}", name) for name in named)
