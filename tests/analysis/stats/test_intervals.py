import numpy as np
import pytest

from analysis.simulate import Design, trial
from analysis.stats.intervals import Terms, interval, spread, terms


@pytest.mark.parametrize("design", [Design(60, 0.0, 1), Design(60, 0.4, 10)])
def test_intervals_of_groups_and_pairs_hold_the_truth_at_three_and_five_seeds(design):
    for found in trial(design, 300, (3, 5)).values():
        assert 0.91 <= found.group <= 0.985
        assert 0.91 <= found.pair <= 0.985
        assert found.false_tiers <= 0.06


def test_with_one_seed_it_is_the_t_interval_over_problems():
    values = np.random.default_rng(0).random(40)
    found = interval(values)
    half = 2.0226909 * values.std(ddof=1) / np.sqrt(40)  # t of 39 degrees of freedom
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half))


def test_where_only_seeds_differ_it_is_the_t_interval_over_seeds():
    values = np.repeat([[0.2], [0.5], [0.8]], 10, axis=1)
    half = 4.3026527 * 0.3 / np.sqrt(3)
    assert interval(values).high == pytest.approx(0.5 + half)
    assert interval(values, bounds=(0.0, 1.0)).high == 1.0


def test_weights_make_a_ratio_of_sums_and_are_not_counted_twice():
    values, weights = np.array([1.0, 0.25, np.nan]), np.array([1.0, 4.0, 0.0])
    assert interval(values, weights).mean == pytest.approx(2 / 5)
    assert interval(values, weights) == interval(values, 7 * weights)
    assert spread(terms(values[None], weights[None])).problems == pytest.approx(25 / 17)


def test_problems_on_which_nothing_is_defined_change_nothing():
    values = np.random.default_rng(0).random((3, 20))
    padded = np.pad(values, ((0, 0), (0, 30)), constant_values=np.nan)
    found = interval(padded, np.where(np.isnan(padded), 0.0, 1.0))
    expected = interval(values)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_seeds_count_equally_whatever_their_weights():
    values, weights = np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[9.0, 9.0], [1.0, 1.0]])
    assert interval(values, weights).mean == 0.5


def test_a_seed_without_any_weight_has_no_say():
    values = np.random.default_rng(0).random((3, 20))
    weights = np.ones_like(values)
    weights[2] = 0
    assert interval(values, weights) == interval(values[:2])


def test_a_constant_has_no_width_and_what_cannot_be_known_is_nan():
    found = interval(np.full((3, 10), 0.7))
    assert (found.low, found.high) == pytest.approx((0.7, 0.7))
    assert np.isnan(interval(np.array([1.0]), np.array([0.0])).mean)
    alone = interval(np.array([0.5]))
    assert alone.mean == 0.5
    assert np.isnan(alone.low)


def test_the_p_value_is_where_the_cautious_interval_ends_at_zero():
    found = spread(terms(0.1 + np.random.default_rng(0).normal(0, 0.3, (3, 40)), np.ones((3, 40))))
    p = float(found.p_value())
    assert 0 < p < 1
    assert float(found.cautious().half_width(1 - p)) == pytest.approx(abs(float(found.mean)))
    nothing = spread(Terms(np.zeros(3), np.zeros((3, 9)), np.full((3, 9), 1 / 9)))
    assert float(nothing.p_value()) == pytest.approx(1)
    sure = spread(Terms(np.full(3, 0.5), np.zeros((3, 9)), np.full((3, 9), 1 / 9)))
    assert float(sure.p_value()) < 1e-9
