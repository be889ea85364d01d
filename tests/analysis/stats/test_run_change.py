import numpy as np
import pandas as pd
import pytest

from analysis.run_change import gained_and_lost, pass_changes, problem_changes
from analysis.runs import load_run
from analysis.scores import accepted_share


def changes(n_before, c_before, n_after, c_after):
    names = [f"p{i}" for i in range(len(c_before))]
    columns = {"n_before": n_before, "c_before": c_before, "n_after": n_after, "c_after": c_after}
    return pd.DataFrame(columns, index=names)


def test_a_run_is_compared_on_the_problems_of_both_evaluations(tmp_path, make_run):
    path = make_run(tmp_path, problems=6, samples=10)
    evals = pd.read_parquet(path / "evals.parquet")
    gone = evals["problem"].iloc[0]
    evals[(evals["step"] > 0) | (evals["problem"] != gone)].to_parquet(path / "evals.parquet")
    run = load_run(path)
    both = problem_changes(run, 0, 20)
    assert len(both) == 5 and gone not in both.index
    (row,) = pass_changes(both, (1,)).to_dict("records")
    assert row["before"] == pytest.approx(accepted_share(run, 0))
    assert row["change"] == pytest.approx(row["after"] - row["before"])


def test_a_k_counts_the_problems_with_so_many_samples():
    table = pass_changes(changes([10, 4], [5, 0], [10, 10], [10, 0]), (1, 5, 20))
    assert list(table["k"]) == [1, 5] and list(table["problems"]) == [2, 1]


def test_problems_are_gained_and_lost_by_any_accepted_program_the_surest_first():
    table = changes([9] * 5, [0, 0, 3, 0, 8], [9] * 5, [1, 7, 0, 0, 9])
    gained, lost = gained_and_lost(table)
    assert list(gained.index) == ["p1", "p0"] and list(lost.index) == ["p2"]


@pytest.mark.parametrize("k", [1, 5])
def test_the_sampling_interval_contains_the_change_of_the_same_problems(k):
    """Of 400 redrawn evaluations of fixed problems, about 95 in 100 intervals hold the truth."""
    random = np.random.default_rng(0)
    n, rates = 20, (random.beta(0.6, 1.5, 60), random.beta(1.0, 1.0, 60))
    truth = np.mean((1 - (1 - rates[1]) ** k) - (1 - (1 - rates[0]) ** k))
    held = 0
    for _ in range(400):
        before, after = (random.binomial(n, rate) for rate in rates)
        table = changes([n] * 60, before, [n] * 60, after)
        (row,) = pass_changes(table, (k,)).to_dict("records")
        held += row["sampling_low"] <= truth <= row["sampling_high"]
        assert row["sampling_high"] - row["sampling_low"] < row["high"] - row["low"]
    assert 0.92 < held / 400 < 0.98
