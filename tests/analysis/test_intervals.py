"""Intervals, moderated variances and power."""

import numpy as np
import pytest
from scipy import stats

from analysis.intervals import (
    MOST_FREEDOM,
    Estimate,
    SeedMeans,
    estimate,
    interval,
    moderate,
    moderated_difference,
    noise_parts,
    probability_of_improvement,
    resources_needed,
    sampling_variance,
    seed_means,
    seed_spread,
    smallest_difference,
)
from analysis.pass_at_k import pass_at_k
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


def test_the_probability_of_improvement_counts_a_tie_one_half():
    a, b = np.array([[0.5, 1.0], [0.5, 0.0]]), np.array([[0.5, 0.0], [0.0, 0.0]])
    # Problem 1: two ties and two wins of four; problem 2: two wins and two ties.
    assert probability_of_improvement(a, b) == 0.75


def test_what_was_not_measured_is_left_out():
    a, b = np.array([[0.5, np.nan], [np.nan, np.nan]]), np.array([[0.2, 0.3], [0.9, 0.3]])
    assert probability_of_improvement(a, b) == 0.5
    assert np.isnan(probability_of_improvement(a[:, 1:], b[:, 1:]))


# Variances over seeds, shrunk towards what the arms have in common.


def of_chance(arms, freedom, seed=0, spread=1.0):
    random = np.random.default_rng(seed)
    return spread * random.chisquare(freedom, arms) / freedom, np.full(arms, float(freedom))


def test_arms_that_differ_by_chance_alone_come_near_to_their_mean():
    variances, freedom = of_chance(15, 4, seed=1)
    moderated, of = moderate(variances, freedom)
    assert moderated.std() < 0.7 * variances.std()
    assert moderated.mean() == pytest.approx(variances.mean(), rel=0.25)
    most = 4 + MOST_FREEDOM * 14
    assert of.max() == pytest.approx(most)
    order = np.argsort(variances)
    assert (np.diff(moderated[order]) >= 0).all()  # none overtakes another


def test_an_arm_far_above_the_others_keeps_its_own():
    variances, freedom = of_chance(15, 4)
    variances[3] = 100.0
    moderated, of = moderate(variances, freedom)
    assert (moderated[3], of[3]) == (100.0, 4)
    assert np.delete(moderated, 3).max() < 10


def test_the_moments_of_log_variances_give_back_what_drew_them():
    """The common variance of many arms whose own are drawn from a scaled inverse chi²."""
    random = np.random.default_rng(0)
    worth, common, d, arms = 6.0, 0.04, 4, 4000
    true = common * worth / random.chisquare(worth, arms)
    variances = true * random.chisquare(d, arms) / d
    moderated, _ = moderate(variances, np.full(arms, float(d)))
    expected = (worth * common + d * variances) / (worth + d)
    calm = moderated != variances
    assert np.median(moderated[calm] / expected[calm]) == pytest.approx(1, abs=0.05)


def test_what_was_not_measured_stays_so_and_informs_nobody():
    variances, freedom = of_chance(6, 2)
    more = np.append(variances, np.nan), np.append(freedom, 0.0)
    moderated, of = moderate(*more)
    assert np.isnan(moderated[-1]) and of[-1] == 0
    alone, of_alone = moderate(variances, freedom)
    assert (moderated[:-1] == alone).all() and (of[:-1] == of_alone).all()


@pytest.mark.parametrize("variances", [[0.3], [np.nan, 0.3], [0.0, 0.0, 0.0]])
def test_with_nothing_to_learn_from_nothing_changes(variances):
    variances = np.array(variances)
    freedom = np.where(np.isnan(variances), 0.0, 2.0)
    moderated, of = moderate(variances, freedom)
    np.testing.assert_array_equal(moderated, variances)
    np.testing.assert_array_equal(of, freedom)


def test_seeds_that_agree_by_chance_are_not_taken_at_their_word():
    variances, freedom = of_chance(8, 4)
    variances[0] = 0.0
    assert moderate(variances, freedom)[0][0] > 0.03


def test_a_difference_of_two_arms_has_welchs_degrees_of_freedom():
    means = np.random.default_rng(0).normal(size=(2, 5)) * [[1], [3]]
    welch = stats.ttest_ind(*means, equal_var=False)
    variances, freedom = seed_spread(means)
    assert variances == pytest.approx(means.var(axis=1, ddof=1))
    one, other = (seed_means(of[:, None] + np.zeros((5, 2)), np.ones((5, 2))) for of in means)
    found = moderated_difference(
        estimate(one - other), (variances[0], freedom[0]), (variances[1], freedom[1])
    )
    assert found.seed_freedom == pytest.approx(welch.df)
    assert found.mean / np.sqrt(found.seed_variance) == pytest.approx(welch.statistic)


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
