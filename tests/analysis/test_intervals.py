import numpy as np
import pytest

from analysis.intervals import (
    SeedMeans,
    estimate,
    interquartile_mean,
    interval,
    performance_profile,
    probability_of_improvement,
    seed_means,
)
from tests.analysis.simulation import Design, simulate


@pytest.mark.parametrize("design", [Design(60, 0.0, 1), Design(60, 0.4, 10)])
def test_intervals_of_groups_and_pairs_hold_the_truth_at_three_and_five_seeds(design):
    for result in simulate(design, 300, (3, 5)).values():
        assert 0.91 <= result.group <= 0.985
        assert 0.91 <= result.pair <= 0.985
        assert result.false_tiers <= 0.06


def test_with_one_seed_it_is_the_t_interval_over_problems():
    values = np.random.default_rng(0).random(40)
    result = interval(values)
    half = 2.0226909 * values.std(ddof=1) / np.sqrt(40)  # t of 39 degrees of freedom
    assert result.mean == pytest.approx(values.mean())
    assert (result.low, result.high) == pytest.approx((values.mean() - half, values.mean() + half))


def test_where_only_seeds_differ_it_is_the_t_interval_over_seeds():
    values = np.repeat([[0.2], [0.5], [0.8]], 10, axis=1)
    half = 4.3026527 * 0.3 / np.sqrt(3)
    assert interval(values).high == pytest.approx(0.5 + half)
    assert interval(values, bounds=(0.0, 1.0)).high == 1.0


def test_weights_make_a_ratio_of_sums_and_are_not_counted_twice():
    values, weights = np.array([1.0, 0.25, np.nan]), np.array([1.0, 4.0, 0.0])
    assert interval(values, weights).mean == pytest.approx(2 / 5)
    assert interval(values, weights) == interval(values, 7 * weights)
    assert estimate(seed_means(values[None], weights[None])).problems == pytest.approx(25 / 17)


def test_problems_on_which_nothing_is_defined_change_nothing():
    values = np.random.default_rng(0).random((3, 20))
    padded = np.pad(values, ((0, 0), (0, 30)), constant_values=np.nan)
    result = interval(padded, np.where(np.isnan(padded), 0.0, 1.0))
    expected = interval(values)
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))


def test_seeds_count_equally_whatever_their_weights():
    values, weights = np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[9.0, 9.0], [1.0, 1.0]])
    assert interval(values, weights).mean == 0.5


def test_a_constant_has_no_width_and_what_cannot_be_known_is_nan():
    result = interval(np.full((3, 10), 0.7))
    assert (result.low, result.high) == pytest.approx((0.7, 0.7))
    assert np.isnan(interval(np.array([1.0]), np.array([0.0])).mean)
    alone = interval(np.array([0.5]))
    assert alone.mean == 0.5
    assert np.isnan(alone.low)


def test_the_p_value_is_where_the_tested_interval_ends_at_zero():
    result = estimate(
        seed_means(0.1 + np.random.default_rng(0).normal(0, 0.3, (3, 40)), np.ones((3, 40)))
    )
    p = float(result.p_value())
    assert 0 < p < 1
    assert float(result.tested().half_width(1 - p)) == pytest.approx(abs(float(result.mean)))
    nothing = estimate(SeedMeans(np.zeros(3), np.zeros((3, 9)), np.full((3, 9), 1 / 9)))
    assert float(nothing.p_value()) == pytest.approx(1)
    sure = estimate(SeedMeans(np.full(3, 0.5), np.zeros((3, 9)), np.full((3, 9), 1 / 9)))
    assert float(sure.p_value()) < 1e-9


def test_they_are_what_they_are_said_to_be():
    a, b = np.array([[0.5, 1.0], [0.5, 0.0]]), np.array([[0.5, 0.0], [0.0, 0.0]])
    # Problem 1: two ties and two wins of four; problem 2: two wins and two ties.
    assert probability_of_improvement(a, b) == 0.75
    assert interquartile_mean(np.array([[0.0, 1.0, 2.0, 9.0]])) == 1.5
    assert performance_profile(a, np.array([0.0, 0.5, 1.0])) == pytest.approx([0.75, 0.25, 0.0])


def test_what_was_not_measured_is_left_out():
    a, b = np.array([[0.5, np.nan], [np.nan, np.nan]]), np.array([[0.2, 0.3], [0.9, 0.3]])
    assert probability_of_improvement(a, b) == 0.5
    assert interquartile_mean(a) == 0.5
    assert np.isnan(probability_of_improvement(a[:, 1:], b[:, 1:]))
