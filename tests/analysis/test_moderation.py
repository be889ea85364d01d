"""Variances over seeds, shrunk towards what the arms have in common."""

import numpy as np
import pytest
from scipy import stats

from analysis.intervals import (
    MOST_FREEDOM,
    estimate,
    moderate,
    moderated_difference,
    seed_means,
    seed_spread,
)


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
