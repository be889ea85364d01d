import numpy as np
import pandas as pd
import pytest

from analysis.groups import evaluated_models, group_runs
from analysis.rendering import amount_cells
from analysis.runs import load_run
from analysis.tables import (
    cost_table,
    difficulty_table,
    pass_at_k_table,
    result_table,
    run_table,
)
from tests.analysis.conftest import share


def test_the_base_stands_once_and_each_group_at_its_end(groups):
    results = result_table(evaluated_models(groups)).set_index("label")
    assert list(results.index) == ["base", "ppo", "spo"]
    assert list(results["step"]) == [0, 20, 20]
    assert list(results["seeds"]) == [2, 2, 2]
    for group in groups:
        expected = np.mean([share(run, 20) for run in group.runs])
        row = results.loc[group.label]
        assert row["pass@1"] == pytest.approx(expected)
        assert row["pass@1_low"] < expected < row["pass@1_high"]
        assert row["gain"] == pytest.approx(expected / np.mean([share(r, 0) for r in group.runs]))
        spent = np.mean([run.metrics["budget/generated_tokens"].iloc[-1] for run in group.runs])
        assert row["generated_tokens"] == pytest.approx(spent)
    assert (results["pass@1"] <= results["pass@5"]).all()
    assert (results["pass@5"] <= results["pass@10"]).all()


def test_pass_at_k_rises_with_k_and_starts_at_the_accepted_share(groups):
    table = pass_at_k_table(evaluated_models(groups))
    for _, curve in table.groupby("label"):
        assert list(curve["k"]) == list(range(1, 21))
        assert curve["mean"].is_monotonic_increasing


def test_costs_say_how_many_programs_an_arm_learned_from(tmp_path, make_run):
    path = make_run(tmp_path, "spo", steps=20)
    metrics = pd.read_parquet(path / "metrics.parquet")
    taken = {"budget/offline_accepted": 24 * metrics["step"], "budget/offline_rejected": 0}
    metrics.assign(**taken).to_parquet(path / "metrics.parquet", index=False)
    other = make_run(tmp_path, "ppo", steps=20)  # recorded before there were such columns
    costs = cost_table(group_runs([load_run(path), load_run(other)])).set_index("label")
    assert costs.loc["spo", ["offline_accepted", "offline_rejected"]].tolist() == [480, 0]
    assert np.isnan(costs.loc["ppo", "offline_accepted"])
    heading, rows = amount_cells(costs.reset_index())
    place = heading.index("accepted programs learned from")
    assert [row[place] for row in rows] == ["–", "480"]


def test_the_run_table_has_every_run(groups):
    table = run_table(groups)
    assert len(table) == 4
    assert table["averaged"].all()
    assert set(table["commit"]) == {"0123abc"}


def test_difficulties_stand_from_easy_to_hard_and_average_to_the_whole(groups):
    models = evaluated_models(groups)
    table = difficulty_table(models)
    assert list(table["difficulty"].cat.categories) == ["easy", "medium", "hard"]
    spo = table[(table["label"] == "spo") & (table["metric"] == "pass@1")]
    whole = np.average(spo["mean"], weights=spo["problems"])
    results = result_table(models).set_index("label")
    assert whole == pytest.approx(results.loc["spo", "pass@1"])


def test_partial_metrics_are_also_compared_on_the_problems_that_all_groups_have(groups):
    models = evaluated_models(groups)
    first, second = (model.grids["distinct_of_5"] for model in models[1:])
    has = [
        {p for p, w in zip(g.problems, g.weights.any(0), strict=True) if w} for g in (first, second)
    ]
    assert has[0] and has[1]
    common = sorted(has[0] & has[1])
    rows = result_table(models).set_index("label")
    for model, grid in zip(models[1:], (first, second), strict=True):
        row, restricted = rows.loc[model.label], grid.restrict(common)
        assert row["distinct_of_5_common_problems"] == len(common)
        expected = np.average(restricted.values, weights=restricted.weights, axis=1).mean()
        assert row["distinct_of_5_common"] == pytest.approx(expected, abs=0.02)
        assert row["distinct_accepted@5_problems"] == row["problems"]
    assert rows.loc["base", "distinct_of_5_common_problems"] != len(common)
