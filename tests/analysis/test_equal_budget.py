import numpy as np
import pandas as pd
import pytest

from analysis.budgets import AREA, equal_budget_tables, spend_to_reach, threshold_table
from analysis.groups import group_runs
from analysis.runs import load_run

SMALL = {"problems": 10, "samples": 10, "every": 10}


@pytest.fixture
def groups(tmp_path, make_run):
    paths = [make_run(tmp_path, algo, seed, **SMALL) for algo in ("ppo", "spo") for seed in (0, 1)]
    for path in paths[:2]:
        metrics = pd.read_parquet(path / "metrics.parquet")
        metrics["budget/judged_programs"] *= 2  # PPO has spent at step 10 what SPO has at step 20
        metrics.to_parquet(path / "metrics.parquet")
    return group_runs([load_run(path) for path in paths])


def share(run, step):
    samples = run.evaluation(step)
    return (samples["verdict"] == "ACCEPTED").groupby(samples["problem"]).mean().mean()


def test_at_equal_budget_who_spends_twice_as_fast_is_taken_half_way(groups):
    means, differences = equal_budget_tables(groups, (1, 5))
    table = means[means["axis"] == "judged_programs"].set_index(["label", "metric"])
    assert set(table["budget"]) == {20 * 128}
    for group, step in zip(groups, (10, 20), strict=True):
        expected = np.mean([share(run, step) for run in group.runs])
        assert table.loc[(group.label, "pass@1"), "mean"] == pytest.approx(expected)
    row = differences[
        (differences["axis"] == "judged_programs")
        & (differences["metric"] == "pass@1")
        & (differences["a"] == "ppo")
    ].iloc[0]
    expected = table.loc[("ppo", "pass@1"), "mean"] - table.loc[("spo", "pass@1"), "mean"]
    assert row["difference"] == pytest.approx(expected)
    before, middle, end = (np.mean([share(r, s) for r in groups[1].runs]) for s in (0, 10, 20))
    area = (before + 2 * middle + end) / 4
    assert table.loc[("spo", AREA), "mean"] == pytest.approx(area)
    assert set(means["axis"]) == {"generated_tokens", "judged_programs", "wall_time"}


def test_a_group_that_spent_nothing_on_an_axis_is_left_out_of_that_axis_alone(groups):
    for run in groups[0].runs:
        run.metrics["budget/judged_programs"] = 0
    means, _ = equal_budget_tables(groups, (1,))
    labels = means.groupby("axis")["label"].unique()
    assert list(labels["judged_programs"]) == ["spo"]
    assert list(labels["generated_tokens"]) == ["ppo", "spo"]


def test_where_nothing_more_was_spent_the_last_evaluation_counts(groups):
    for run in groups[0].runs:  # all programs were judged by the evaluation at step 10
        judged = run.metrics["budget/judged_programs"]
        run.metrics["budget/judged_programs"] = judged.clip(
            upper=judged[run.metrics["step"] == 10].max()
        )
    means, _ = equal_budget_tables(groups, (1,))
    table = means[means["axis"] == "judged_programs"].set_index(["label", "metric"])
    expected = np.mean([share(run, 20) for run in groups[0].runs])
    assert table.loc[("ppo", "pass@1"), "mean"] == pytest.approx(expected)


def test_the_budget_to_a_threshold_lies_between_its_evaluations(groups):
    run = groups[1].runs[0]
    values = [share(run, step) for step in (0, 10, 20)]
    half = (values[0] + values[1]) / 2
    assert spend_to_reach(run, "step", half) == pytest.approx(5)
    assert spend_to_reach(run, "step", 0.0) == 0
    assert np.isnan(spend_to_reach(run, "step", 1.1))
    table = threshold_table(groups)
    assert (table["reached"] <= table["seeds"]).all()
    least = min(np.mean([share(r, 20) for r in g.runs]) for g in groups)
    assert table["threshold"].unique() == pytest.approx([least])
