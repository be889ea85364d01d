import numpy as np
import pytest

from analysis.intervals import (
    Estimate,
    estimate,
    noise_parts,
    resources_needed,
    sampling_variance,
    seed_means,
    smallest_difference,
)
from analysis.pass_at_k import pass_at_k
from tests.analysis.simulation import Design, simulate


def drawn(problems, samples, seeds=40):
    """Seeds that differ in nothing but their samples, on equally hard problems: (spread, noise)."""
    random = np.random.default_rng(0)
    accepted = random.binomial(samples, 0.3, (seeds, problems))
    estimated = estimate(seed_means(accepted / samples, np.ones(accepted.shape)))
    each = sampling_variance(accepted, np.full(accepted.shape, samples), 1)
    return estimated, noise_parts(estimated, float(each.sum()) / (seeds * problems) ** 2)


def test_the_variance_of_a_share_is_the_binomial_one_without_bias():
    accepted, samples = np.array([0, 3, 10]), np.array([10, 10, 10])
    expected = [c / 10 * (1 - c / 10) / 9 for c in accepted]
    assert sampling_variance(accepted, samples, 1) == pytest.approx(expected)


def test_the_variance_of_pass_at_k_is_that_of_new_samples():
    random = np.random.default_rng(0)
    again = [pass_at_k(20, int(c), 5) for c in random.binomial(20, 0.2, 20_000)]
    estimated = sampling_variance(np.array([4]), np.array([20]), 5)[0]
    assert estimated == pytest.approx(np.var(again) * 20 / 19, rel=0.05)
    assert np.isnan(sampling_variance(np.array([1]), np.array([4]), 5)[0])


def test_noise_that_is_all_sampling_is_found_to_be():
    _, parts = drawn(400, 10)
    assert parts.shares()["sampling"] > 0.8


def test_more_samples_help_where_sampling_is_the_noise_and_seeds_where_seeds_are():
    # Exactly: in a drawn one, chance leaves some of the noise to seeds and to problems.
    estimated = Estimate(0.0, 0.0, 0.01, 0.01, 40, 400, 39.0)
    now = float(smallest_difference(estimated))
    more = resources_needed(estimated, noise_parts(estimated, 0.01), 10, now / 2)
    assert more["samples"] == 40  # half the difference, four times the samples
    luck = np.array([0.1, 0.5, 0.3, 0.7])[:, None] + np.zeros((4, 50))
    estimated = estimate(seed_means(luck, np.ones(luck.shape)))
    more = resources_needed(estimated, noise_parts(estimated, 0.0), 10, 0.1)
    assert 20 < more["seeds"] < 1000
    assert more["samples"] == more["problems"] == np.inf


def test_with_one_seed_its_luck_is_not_known():
    _, parts = drawn(50, 10, seeds=1)
    assert np.isnan([parts.seeds, parts.interaction]).all()
    assert parts.problems >= 0


def test_the_smallest_difference_is_seen_in_about_so_many_cases():
    estimated = simulate(Design(60, 0.15, 1), 300, (5,))[5]
    assert 0.7 < estimated.power < 0.9
