"""Corrected tests hold their error in studies without a difference, and find one where it is."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit

from analysis.comparisons import (
    control_differences,
    interactions,
    paired_differences,
    with_equality,
)
from analysis.metrics import ScoreGrid
from analysis.runs import Contrast

STUDIES, PROBLEMS, SAMPLES = 150, 60, 20
MOST = 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / STUDIES)  # of errors that are made in one of 20 studies
SPREADS = {  # standard deviation of arms over seeds, in logits
    "equal": np.full(5, 0.3),
    "one outlier": np.array([0.15, 0.15, 0.15, 0.15, 0.9]),
    "outlying control": np.array([0.9, 0.15, 0.15, 0.15, 0.15]),
}


def study(strengths, spread, seeds, random):
    """Groups whose chance to solve a problem varies over problems, seeds and both."""
    difficulty = random.normal(-1, 2, PROBLEMS)
    groups = []
    for arm, strength in enumerate(strengths):
        luck = random.normal(0, spread[arm], (seeds, 1))
        own = random.normal(0, 0.5, PROBLEMS) + random.normal(0, 0.3, (seeds, PROBLEMS))
        chance = expit(strength + difficulty + luck + own)
        values = random.binomial(SAMPLES, chance) / SAMPLES
        names = tuple(f"{i:03}" for i in range(PROBLEMS))
        grid = ScoreGrid(tuple(range(seeds)), names, values, np.ones_like(values))
        groups.append(SimpleNamespace(label=str(arm), seeds=grid.seeds, grids={"pass@1": grid}))
    return groups


def shares(strengths, spread, seeds=3):
    """Shares of studies with a separated pair, of all and of those with the first arm."""
    random, found = np.random.default_rng(4), []
    for _ in range(STUDIES):
        pairs = paired_differences(study(strengths, spread, seeds, random), ["pass@1"])
        against = control_differences(pairs, "0")
        found.append([any(one.separated for one in family) for family in (pairs, against)])
    return np.mean(found, axis=0)


@pytest.mark.parametrize("name", SPREADS)
def test_equal_arms_are_seldom_separated(name, monkeypatch):
    monkeypatch.setattr("analysis.comparisons.DRAWS", 5_000)
    assert (shares(np.zeros(5), SPREADS[name]) <= MOST).all()


def test_intervals_of_interactions_miss_no_difference_in_one_of_twenty_studies():
    random, missed = np.random.default_rng(6), 0
    for _ in range(STUDIES):
        groups = study(np.array([1, 0, 1, 0, 0]), SPREADS["equal"], 3, random)
        (found,) = interactions(groups, [Contrast("(0 - 1)", "(2 - 3)", "pass@1")])
        missed += not found.difference.low <= 0 <= found.difference.high
    assert 0 < missed <= MOST * STUDIES


def test_a_control_asks_for_a_smaller_difference_than_all_pairs(monkeypatch):
    monkeypatch.setattr("analysis.comparisons.DRAWS", 5_000)
    every, control = shares(np.array([0, 0, 0, 0, 1.2]), SPREADS["equal"])
    assert every > 0.3 and control > 0.3


def test_arms_that_differ_by_the_margin_are_seldom_called_equal():
    random, equal = np.random.default_rng(5), 0
    for _ in range(STUDIES):
        groups = study(np.array([0.0, 0.6]), np.full(2, 0.1), 5, random)
        (pair,) = with_equality(paired_differences(groups, ["pass@1"]), 0.06)
        equal += pair.answer == "equal"
    assert equal / STUDIES <= MOST
