"""How often arms are called equal, in simulated studies."""

import numpy as np
import pytest

from tests.analysis.stats.named_ahead import equal_shares, lead_of
from tests.analysis.stats.simulated_studies import scores

STUDIES = 400
SLACK = 2 * np.sqrt(0.06 * 0.94 / STUDIES)


def test_arms_differ_by_the_margin():
    leads = np.array([0.0, lead_of(0.1)])
    low, high = scores(leads, "equal", 400, 1, np.random.default_rng(0))[0].mean(axis=(1, 2))
    assert high - low == pytest.approx(0.1, abs=0.04)  # of these 120 problems


def test_equal_arms_are_called_so_the_more_often_the_wider_the_margin():
    narrow, wide = equal_shares(5, 0.0, (0.02, 0.3), 6)
    assert narrow <= wide == 1.0


@pytest.mark.slow  # hundreds of studies
@pytest.mark.parametrize("seeds", [3, 10])
@pytest.mark.parametrize("margin", [0.03, 0.1])
def test_arms_that_differ_by_the_margin_are_not_called_equal(margin, seeds):
    (wrong,) = equal_shares(seeds, margin, (margin,), STUDIES)
    assert wrong <= 0.05 + SLACK
