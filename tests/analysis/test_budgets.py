"""Curves over budgets, equal budgets, and training curves."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.budgets import (
    AREA,
    MOST_STEPS,
    curve_score,
    equal_budget_tables,
    evaluation_curve,
    kl_at_step,
    spend_to_reach,
    thinned,
    threshold_table,
    training_curve,
)
from analysis.groups import group_runs
from analysis.metrics import DISTINCT
from analysis.runs import Run, load_run
from tests.analysis.conftest import share


def with_metrics(path, **columns):
    """The run after columns of its metrics were set; None takes one away."""
    metrics = pd.read_parquet(path / "metrics.parquet").assign(**columns)
    metrics = metrics.drop(columns=[name for name, values in columns.items() if values is None])
    metrics.to_parquet(path / "metrics.parquet")
    return load_run(path)


def test_curves_are_placed_at_the_budget_spent(groups):
    curve = evaluation_curve(groups)
    spo = curve[curve["label"] == "spo"].set_index("step")
    assert list(spo.index) == [0, 10, 20]
    assert spo.loc[0, "generated_tokens"] == 0
    runs = groups[1].runs
    at_10 = [run.metrics.set_index("step").loc[10] for run in runs]
    tokens = [row["budget/generated_tokens"] + row["budget/reference_tokens"] for row in at_10]
    assert spo.loc[10, "generated_tokens"] == pytest.approx(np.mean(tokens))
    assert spo.loc[10, "wall_time"] == pytest.approx(np.mean([r["time/total_s"] for r in at_10]))
    assert spo.loc[20, "pass@1"] == pytest.approx(np.mean([share(run, 20) for run in runs]))


def test_kl_is_what_the_evaluation_measured(tmp_path, make_run):
    measured = np.full(20, np.nan)
    measured[[9, 19]] = 3.0, 7.0
    run = with_metrics(make_run(tmp_path), **{"eval/kl_ref": measured})
    assert [kl_at_step(run, step) for step in (0, 10, 20)] == [0.0, 3.0, 7.0]
    assert np.isnan(kl_at_step(run, 15))


def test_kl_of_a_run_that_did_not_measure_it_is_the_losses_or_none(tmp_path, make_run):
    run = with_metrics(make_run(tmp_path, "spo"), kl_ref=np.arange(1.0, 21.0))
    assert kl_at_step(run, 0) == 0.0
    assert kl_at_step(run, 20) == pytest.approx(np.mean(np.arange(11, 21)))
    assert kl_at_step(run, 5) == pytest.approx(3.0)
    assert np.isnan(kl_at_step(with_metrics(make_run(tmp_path, "grpo"), kl_ref=None), 20))


def test_the_way_of_pass_at_1_and_diversity_over_kl(tmp_path, make_run):
    paths = [make_run(tmp_path, "spo", seed, skill=8.0) for seed in (0, 1)]
    kls = [np.linspace(0, 4.0, 20), np.linspace(0, 6.0, 20)]
    runs = [with_metrics(p, **{"eval/kl_ref": kl}) for p, kl in zip(paths, kls, strict=True)]
    curve = evaluation_curve(group_runs(runs)).set_index("step")
    assert curve.loc[0, "kl_ref"] == 0.0
    assert curve.loc[20, "kl_ref"] == pytest.approx(5.0)
    row = curve.loc[20]
    assert row[f"{DISTINCT}_low"] <= row[DISTINCT] <= row[f"{DISTINCT}_high"]


SMALL = {"problems": 10, "samples": 10, "every": 10}


@pytest.fixture
def spending(tmp_path, make_run):
    paths = [make_run(tmp_path, algo, seed, **SMALL) for algo in ("ppo", "spo") for seed in (0, 1)]
    for path in paths[:2]:
        metrics = pd.read_parquet(path / "metrics.parquet")
        metrics["budget/judged_programs"] *= 2  # PPO has spent at step 10 what SPO has at step 20
        metrics.to_parquet(path / "metrics.parquet")
    return group_runs([load_run(path) for path in paths])


def test_at_equal_budget_who_spends_twice_as_fast_is_taken_half_way(spending):
    means, differences = equal_budget_tables(spending, (1, 5))
    table = means[means["axis"] == "judged_programs"].set_index(["label", "metric"])
    assert set(table["budget"]) == {20 * 128}
    for group, step in zip(spending, (10, 20), strict=True):
        expected = np.mean([share(run, step) for run in group.runs])
        assert table.loc[(group.label, "pass@1"), "mean"] == pytest.approx(expected)
    row = differences[
        (differences["axis"] == "judged_programs")
        & (differences["metric"] == "pass@1")
        & (differences["a"] == "ppo")
    ].iloc[0]
    expected = table.loc[("ppo", "pass@1"), "mean"] - table.loc[("spo", "pass@1"), "mean"]
    assert row["difference"] == pytest.approx(expected)
    before, middle, end = (np.mean([share(r, s) for r in spending[1].runs]) for s in (0, 10, 20))
    area = (before + 2 * middle + end) / 4
    assert table.loc[("spo", AREA), "mean"] == pytest.approx(area)
    assert set(means["axis"]) == {"generated_tokens", "judged_programs", "wall_time"}


def test_a_group_that_spent_nothing_on_an_axis_is_left_out_of_that_axis_alone(spending):
    for run in spending[0].runs:
        run.metrics["budget/judged_programs"] = 0
    means, _ = equal_budget_tables(spending, (1,))
    labels = means.groupby("axis")["label"].unique()
    assert list(labels["judged_programs"]) == ["spo"]
    assert list(labels["generated_tokens"]) == ["ppo", "spo"]


def test_where_nothing_more_was_spent_the_last_evaluation_counts(spending):
    for run in spending[0].runs:  # all programs were judged by the evaluation at step 10
        judged = run.metrics["budget/judged_programs"]
        run.metrics["budget/judged_programs"] = judged.clip(
            upper=judged[run.metrics["step"] == 10].max()
        )
    means, _ = equal_budget_tables(spending, (1,))
    table = means[means["axis"] == "judged_programs"].set_index(["label", "metric"])
    expected = np.mean([share(run, 20) for run in spending[0].runs])
    assert table.loc[("ppo", "pass@1"), "mean"] == pytest.approx(expected)


def test_the_budget_to_a_threshold_lies_between_its_evaluations(spending):
    run = spending[1].runs[0]
    values = [share(run, step) for step in (0, 10, 20)]
    half = (values[0] + values[1]) / 2
    assert spend_to_reach(run, "step", half) == pytest.approx(5)
    assert spend_to_reach(run, "step", 0.0) == 0
    assert np.isnan(spend_to_reach(run, "step", 1.1))
    table = threshold_table(spending)
    assert (table["reached"] <= table["seeds"]).all()
    least = min(np.mean([share(r, 20) for r in g.runs]) for g in spending)
    assert table["threshold"].unique() == pytest.approx([least])


# The score of a trial: area under (pass@1 + pass@10)/2 over training.


def run(accepted, samples=10, steps=None):
    """{step: accepted samples of each problem} → a run with `samples` for each problem.

    It has as many steps as its last evaluation, or `steps`.
    """
    rows = [
        (step, f"p{i}", n, "ACCEPTED" if n < count else "WRONG_ANSWER", "print(1)")
        for step, counts in accepted.items()
        for i, count in enumerate(counts)
        for n in range(samples)
    ]
    columns = ["step", "problem", "sample", "verdict", "program"]
    config = {"steps": max(accepted) if steps is None else steps}
    return Run(Path("r"), config, {}, pd.DataFrame(), pd.DataFrame(rows, columns=columns))


def test_the_score_is_the_area_under_the_mean_of_pass_at_1_and_pass_at_10():
    # pass@1 0, .1, .6; pass@10 of ten samples: the share of problems with an accepted one
    one = run({0: [0, 0], 10: [2, 0], 40: [10, 2]})
    assert curve_score(one) == pytest.approx((10 * 0.15 + 30 * 0.55) / 40)


def test_of_two_runs_with_the_same_pass_at_1_the_more_diverse_one_scores_higher():
    narrow, wide = run({0: [0, 0], 10: [10, 0]}), run({0: [0, 0], 10: [5, 5]})
    assert curve_score(wide) == pytest.approx((0.5 + 1) / 4)
    assert curve_score(narrow) == pytest.approx((0.5 + 0.5) / 4)


@pytest.mark.parametrize(
    "one",
    [
        run({10: [5], 40: [8]}),  # without the base model
        run({0: [0], 10: [5]}, steps=40),  # without the end
        run({0: [0]}, steps=40),
        run({0: [0], 10: [5]}, samples=9),  # too few for pass@10
    ],
)
def test_a_part_of_the_curve_gives_no_score(one):
    """Else a trial that left its low start out would score above one that did not."""
    assert math.isnan(curve_score(one))
    assert not math.isnan(curve_score(run({0: [0], 10: [5]})))


def test_a_metric_is_smoothed_averaged_over_seeds_and_has_their_range(tmp_path, make_run):
    steps = np.arange(1.0, 21.0)
    paths = [make_run(tmp_path, "spo", seed) for seed in (0, 1)]
    own = [{"entropy": steps * (1 + seed), "budget/prefix_tokens": 100 * steps} for seed in (0, 1)]
    runs = [with_metrics(path, **columns) for path, columns in zip(paths, own, strict=True)]
    curve = training_curve(group_runs(runs), window=4).set_index("step")
    at_end = curve.loc[20]
    assert (at_end["entropy_low"], at_end["entropy_high"]) == (18.5, 37.0)  # of steps 17 to 20
    assert at_end["entropy"] == pytest.approx(27.75)
    assert (curve["seeds"] == 2).all() and len(curve) == 20
    assert curve.loc[1, "entropy"] == 1.5  # a window that begins before the run
    tokens = [run.metrics.set_index("step").loc[7] for run in runs]
    spent = [row["budget/generated_tokens"] + row["budget/reference_tokens"] for row in tokens]
    assert curve.loc[7, "generated_tokens"] == pytest.approx(np.mean(spent) + 700)


def test_columns_are_those_that_any_run_recorded(tmp_path, make_run):
    critic = with_metrics(make_run(tmp_path, "ppo"), **{"value/explained_variance": np.ones(20)})
    other = with_metrics(make_run(tmp_path, "spo"), clip_share=np.full(20, np.nan))
    curve = training_curve(group_runs([critic, other]), window=1)
    assert "clip_share" not in curve and "reward_mean_high" in curve
    by_group = curve.groupby("label")["value/explained_variance"]
    assert by_group.count().to_dict() == {"ppo": 20, "spo": 0}


def test_long_runs_are_thinned_and_keep_both_ends():
    places = thinned(10 * MOST_STEPS, MOST_STEPS)
    assert len(places) == MOST_STEPS and (places[0], places[-1]) == (0, 10 * MOST_STEPS - 1)
    assert list(thinned(3, MOST_STEPS)) == [0, 1, 2]
