"""Errors and power of equality, of a control and of contrasts, in simulated studies."""

import numpy as np
import pytest

from analysis.stats import named_pairs
from tests.analysis.stats.family_wise import study
from tests.analysis.stats.named_ahead import DRAWS, equal_shares, errors, lead_of, powers

STUDIES = 150
SLACK = 2 * np.sqrt(0.06 * 0.94 / STUDIES)


def test_arms_differ_by_the_margin():
    random, lead = np.random.default_rng(0), lead_of(0.1)
    low, high = study(2, 400, "equal", np.array([0.0, lead]), random)
    gap = high.grids["pass@1"].values.mean() - low.grids["pass@1"].values.mean()
    assert gap == pytest.approx(0.1, abs=0.04)  # of these 120 problems


def test_equal_arms_are_called_so_the_more_often_the_wider_the_margin():
    narrow, wide = equal_shares(5, 0.0, (0.02, 0.3), 6)
    assert narrow <= wide == 1.0


@pytest.mark.slow  # hundreds of studies
@pytest.mark.parametrize("seeds", [3, 10])
@pytest.mark.parametrize("margin", [0.03, 0.1])
def test_arms_that_differ_by_the_margin_are_not_called_equal(margin, seeds):
    (wrong,) = equal_shares(seeds, margin, (margin,), STUDIES)
    assert wrong <= 0.05 + SLACK


@pytest.mark.slow  # hundreds of studies
@pytest.mark.parametrize("spread", ["equal", "unequal", "one wild"])
@pytest.mark.parametrize(("arms", "seeds"), [(5, 3), (15, 5)])
def test_the_family_wise_error_of_control_and_contrasts_holds(arms, seeds, spread, monkeypatch):
    monkeypatch.setattr(named_pairs, "DRAWS", DRAWS)
    found = errors(arms, seeds, spread, STUDIES)
    assert max(found["control"], found["contrasts"]) <= 0.06 + SLACK


@pytest.mark.slow  # hundreds of studies
def test_few_questions_find_more_than_all_pairs(monkeypatch):
    monkeypatch.setattr(named_pairs, "DRAWS", DRAWS)
    even, alone = powers(15, 3, 30)
    assert even["control"] > even["control, all pairs"]
    assert even["contrasts"] > even["contrasts, all pairs"]
    assert alone["control"] >= alone["control, Holm"] > alone["control, all pairs"]
