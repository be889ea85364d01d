"""Equality within a margin: two one-sided tests, and what an answer takes."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from analysis.comparisons import (
    difference_table,
    equality_p_values,
    holm,
    paired_differences,
    with_equality,
)
from analysis.intervals import Estimate, resources_to_decide, smallest_margin
from analysis.metrics import ScoreGrid

# 5 seeds whose difference has mean .01 and a standard error of .02, with 8 degrees of freedom.
OF_SEEDS = Estimate(0.01, 0.02**2, 0.0, 0.0, 5, 200, 8.0)


def group(label, means, metric="pass@1"):
    """Seeds with these means, on 50 problems that are equally hard."""
    values = np.asarray(means, dtype=float)[:, None] + np.zeros((len(means), 50))
    problems = tuple(f"p{i}" for i in range(50))
    grid = ScoreGrid(tuple(range(len(means))), problems, values, np.ones_like(values))
    return SimpleNamespace(label=label, seeds=grid.seeds, grids={metric: grid})


def test_the_p_value_is_the_greater_one_of_two_one_sided_t_tests():
    lower = stats.t.sf((0.01 + 0.05) / 0.02, 8)
    upper = stats.t.cdf((0.01 - 0.05) / 0.02, 8)
    assert upper > lower
    assert equality_p_values(OF_SEEDS, 0.05) == pytest.approx(upper, rel=1e-6)
    assert equality_p_values(OF_SEEDS, 0.01) == pytest.approx(0.5)  # on the bound
    outside = stats.t.cdf((0.01 - 0.005) / 0.02, 8)
    assert equality_p_values(OF_SEEDS, 0.005) == pytest.approx(outside, rel=1e-6)


def test_equal_is_where_the_90_per_cent_interval_lies_within_the_margin():
    half = float(OF_SEEDS.half_width(0.9))
    for margin, equal in ((0.01 + 1.01 * half, True), (0.01 + 0.99 * half, False)):
        assert (equality_p_values(OF_SEEDS, margin) < 0.05) == equal


def test_the_tests_of_two_arms_are_welchs():
    one, two = [0.50, 0.52, 0.49, 0.51], [0.51, 0.50, 0.53, 0.50]
    (pair,) = paired_differences([group("a", one), group("b", two)], ["pass@1"])
    difference = np.mean(one) - np.mean(two)
    shifted = stats.ttest_ind(np.array(one) + 0.03, two, equal_var=False, alternative="greater")
    assert difference < 0
    # Two arms are too few to moderate much, but not nothing: their own spread, with more freedom.
    found = float(equality_p_values(pair.estimate, 0.03))
    spread = np.sqrt(pair.estimate.seed_variance)
    expected = stats.t.sf((difference + 0.03) / spread, pair.estimate.seed_freedom)
    assert found == pytest.approx(expected, rel=1e-6)
    assert found == pytest.approx(shifted.pvalue, rel=0.5)


def test_four_answers_and_their_columns():
    arms = {"a": 0.5, "b": 0.501, "c": 0.9, "d": 0.52}
    spread = {"d": 0.05}
    groups = [
        group(label, mean + spread.get(label, 0.001) * np.array([-1, 1, 0, 0.5, -0.5]))
        for label, mean in arms.items()
    ]
    pairs = with_equality(paired_differences(groups, ["pass@1"]), 0.03)
    answers = {(pair.a, pair.b): pair.answer for pair in pairs}
    assert answers["a", "b"] == "equal"
    assert answers["a", "c"] == "below"
    assert answers["a", "d"] == "not decided"
    table = difference_table(pairs).set_index(["a", "b"])
    assert table.loc[("c", "a"), "answer"] == "above"
    assert table.loc[("b", "a"), "answer"] == "equal"
    assert table.loc[("a", "d"), "seeds_to_decide"] > 5
    assert table.loc[("a", "b"), "seeds_to_decide":].isna().all()
    raw = [float(equality_p_values(pair.estimate, 0.03)) for pair in pairs]
    assert [pair.equal_p for pair in pairs] == holm(raw)
    assert set(table["margin"]) == {0.03}


def test_the_seeds_that_decide_have_the_half_widths_that_it_takes():
    """.02 at 5 seeds is .02 · √(5/S) at S; 4 seeds' worth of freedom per arm are 2 · (S − 1)."""
    stacked = Estimate.stack([OF_SEEDS])
    (needed,) = resources_to_decide(stacked, 0.05, 1)["seeds"]

    def margin_at(seeds, level=0.05):
        error, freedom = 0.02 * np.sqrt(5 / seeds), 2 * (seeds - 1)
        equal = stats.t.ppf(1 - level, freedom) + stats.t.ppf(0.9, freedom)
        separated = stats.t.ppf(1 - level / 2, freedom) + stats.t.ppf(0.8, freedom)
        return error * max(equal, separated)

    assert margin_at(needed) <= 0.05 < margin_at(needed - 1)
    assert smallest_margin(OF_SEEDS) == pytest.approx(margin_at(5))
    assert smallest_margin(OF_SEEDS, 10) == pytest.approx(margin_at(5, 0.005))
    assert resources_to_decide(stacked, 0.05, 10)["seeds"] > needed
    assert resources_to_decide(stacked, 0.05, 1)["problems"] == np.inf
