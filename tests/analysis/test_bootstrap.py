import numpy as np
import pytest

from analysis.bootstrap import bootstrap_interval, estimate


def coverage(draw, truth, trials=300):
    inside = 0
    for trial in range(trials):
        interval = bootstrap_interval(draw(np.random.default_rng(trial)), resamples=400)
        inside += interval.low <= truth <= interval.high
    return inside / trials


def test_interval_over_problems_covers_the_mean_at_its_level():
    assert 0.91 <= coverage(lambda random: random.normal(0.4, 0.2, 60), 0.4) <= 0.98


def test_interval_over_seeds_covers_luck_that_all_problems_share():
    """Seeds differ far more than problems: a bootstrap over problems alone would miss by far."""

    def draw(random):
        return 0.4 + random.normal(0, 0.1, (6, 1)) + random.normal(0, 0.05, 40)

    assert 0.84 <= coverage(draw, 0.4) <= 0.99
    assert coverage(lambda random: draw(random).mean(axis=0), 0.4) < 0.5


def test_weights_make_a_ratio_of_sums():
    values, weights = np.array([1.0, 0.25, np.nan]), np.array([1.0, 4.0, 0.0])
    assert estimate(values[None], weights[None]) == pytest.approx(2 / 5)
    assert bootstrap_interval(values, weights).mean == pytest.approx(2 / 5)


def test_seeds_count_equally_whatever_their_weights():
    values, weights = np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[9.0, 9.0], [1.0, 1.0]])
    assert estimate(values, weights) == 0.5


def test_a_constant_has_no_width_and_nothing_measured_is_nan():
    interval = bootstrap_interval(np.full((3, 10), 0.7))
    assert (interval.low, interval.high) == pytest.approx((0.7, 0.7))
    assert np.isnan(bootstrap_interval(np.array([1.0]), np.array([0.0])).low)


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(0).random((3, 20))
    assert bootstrap_interval(values) == bootstrap_interval(values)
