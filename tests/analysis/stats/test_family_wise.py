"""Corrected tests: errors in studies without a difference, power in studies with one."""

import numpy as np
import pytest

from tests.analysis.stats.family_wise import LEAD, SPREADS, rates, study

STUDIES = 200
MOST = 0.06 + 2 * np.sqrt(0.06 * 0.94 / STUDIES)


def test_a_study_has_the_seeds_and_the_lead_that_it_says():
    random = np.random.default_rng(0)
    groups = study(3, 4, "equal", LEAD, random)
    values = [group.grids["pass@1"].values for group in groups]
    assert {one.shape for one in values} == {(4, 120)}
    means = [one.mean() for one in values]
    assert means == sorted(means) and means[2] - means[0] > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(("arms", "seeds"), [(5, 3), (15, 3), (15, 5)])
def test_the_family_wise_error_holds(arms, seeds, spread):
    error, _ = rates(arms, seeds, spread, STUDIES)
    assert error <= MOST


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "least"), [(2, 0.2), (3, 0.35), (5, 0.5)])
def test_fifteen_arms_are_told_apart(seeds, least):
    _, power = rates(15, seeds, "equal", 30, LEAD)
    assert power > least
