"""Corrected tests: errors in simulated studies without a difference, power in others."""

from dataclasses import replace

import numpy as np
import pytest

from analysis import comparisons as named_pairs
from analysis.comparisons import holm, p_values, paired_differences
from tests.analysis import simulated_studies
from tests.analysis.family_wise import (
    ALL,
    CONTRASTS,
    CONTROL,
    CONTROL_HOLM,
    LEAD,
    Rates,
    null_errors,
    rates,
    separations,
)
from tests.analysis.simulated_studies import SPREADS, compare, groups, scores

STUDIES = 400
MOST = 0.06 + 2 * np.sqrt(0.06 * 0.94 / STUDIES)


def test_a_study_has_the_seeds_and_the_lead_that_it_says():
    random = np.random.default_rng(0)
    values = scores(np.array([-LEAD, 0.0, LEAD]), "equal", 4, 2, random)
    assert values.shape == (2, 3, 4, 120)
    means = values.mean(axis=(0, 2, 3)).tolist()
    assert means == sorted(means) and means[2] - means[0] > 0.2


@pytest.fixture(scope="module")
def studies():
    """Scores of three studies of four arms, the last of which is above."""
    return scores(np.array([0.0, 0.0, 0.3, 1.5]), "unequal", 3, 3, np.random.default_rng(2))


def test_many_studies_at_once_have_the_numbers_of_each(studies):
    pairs = compare(studies)
    p = pairs.moderated.p_value()
    for study, values in enumerate(studies):
        each = paired_differences(groups(values), ["pass@1"])
        assert pairs.moderated.mean[study] == pytest.approx([one.estimate.mean for one in each])
        assert p[study] == pytest.approx(p_values(each))


def as_tested(pair):
    """Return control - group with the estimate that its test uses."""
    return replace(pair, estimate=named_pairs.with_control(pair.estimate, pair.lowered[0]))


@pytest.mark.parametrize("family", [ALL, CONTROL, CONTROL_HOLM, CONTRASTS])
def test_what_is_separated_is_what_the_corrected_p_values_say(studies, family, monkeypatch):
    monkeypatch.setattr(named_pairs, "DRAWS", simulated_studies.DRAWS)
    _, separated = separations(compare(studies), family)
    assert separated.any() and not separated.all()
    for found, values in zip(separated, studies, strict=True):
        every = paired_differences(groups(values), ["pass@1"])
        against = named_pairs.control_differences(every, "00")
        expected = {
            ALL: [one.adjusted_p for one in every],
            CONTROL: [one.adjusted_p for one in against],
            CONTROL_HOLM: holm(p_values([as_tested(one) for one in every if one.a == "00"])),
            CONTRASTS: holm(p_values([one for one in every if int(one.b) == int(one.a) + 1])),
        }[family]
        assert found.tolist() == [p < 0.05 for p in expected]


def test_an_error_is_also_a_separation_in_the_wrong_direction():
    random = np.random.default_rng(0)
    found = rates(np.array([0.0, 3.0]), (0.1, 0.1), 5, 20, random)[ALL]
    assert found == Rates(0.0, 1.0, 20)
    assert Rates(0.05, 0.5, 1900).standard_error == pytest.approx(0.005)


@pytest.mark.slow  # hundreds of studies
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(("arms", "seeds"), [(5, 3), (15, 3), (15, 5)])
def test_the_family_wise_error_holds(arms, seeds, spread):
    families = (ALL, CONTROL, CONTRASTS)
    found = null_errors(arms, seeds, spread, STUDIES, families)
    assert max(found[family].error for family in families) <= MOST


@pytest.mark.slow  # hundreds of studies
@pytest.mark.parametrize("spread", ["equal", "one wild"])
@pytest.mark.parametrize("arms", [5, 15])
def test_the_error_against_a_control_holds_at_two_seeds(arms, spread):
    found = null_errors(arms, 2, spread, STUDIES, (CONTROL,))
    assert found[CONTROL].error <= MOST


@pytest.mark.slow  # hundreds of studies
@pytest.mark.parametrize(("seeds", "least"), [(2, 0.2), (3, 0.35), (5, 0.5)])
def test_fifteen_arms_are_told_apart(seeds, least):
    leads = np.linspace(-LEAD, LEAD, 15)
    found = rates(leads, "equal", seeds, 30, np.random.default_rng(0))
    assert found[ALL].power > least


@pytest.mark.slow  # hundreds of studies
def test_few_questions_find_more_than_all_pairs():
    leads, families = np.r_[np.zeros(14), 1.0], (ALL, CONTROL, CONTROL_HOLM, CONTRASTS)
    found = rates(leads, "equal", 3, 60, np.random.default_rng(0), families)
    assert found[CONTROL].power >= found[CONTROL_HOLM].power > found[ALL].power
    assert found[CONTRASTS].power > found[ALL].power
