"""The designs of the table in docs/reference/statistics.md."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.analysis.stats.family_wise import ALL, CONTROL, OWN
from tests.analysis.stats.simulated_studies import scores
from tests.analysis.stats.study_designs import (
    HEADINGS,
    Design,
    designs,
    leads_of,
    with_effects,
    without_effects,
)

STUDIES = 300
PAGE = Path(__file__).parents[3] / "docs/reference/statistics.md"


def test_arms_have_the_pass_rates_of_their_study():
    shares = (0.1, 0.35, 0.6)
    values = scores(leads_of(shares), "equal", 2, 60, np.random.default_rng(0))
    assert values.mean(axis=(0, 2, 3)) == pytest.approx(shares, abs=0.02)


def test_the_page_has_every_design_and_no_error_above_the_level():
    table = PAGE.read_text().split(f"| {' | '.join(HEADINGS)} |")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert [row[0] for row in rows] == [design.name for design in designs()]
    errors = [re.match(r"[\d.]+", row[place]) for row in rows for place in (2, 3, 6, 7)]
    assert max(float(error.group()) for error in errors if error) <= 6.0


@pytest.mark.slow  # hundreds of studies
@pytest.mark.parametrize("design", designs(), ids=lambda design: design.name)
def test_errors_hold_and_moderation_finds_more(design: Design):
    most = 0.06 + 2 * np.sqrt(0.06 * 0.94 / STUDIES)
    none = without_effects(len(design.leads), design.seeds, design.spread, STUDIES)
    assert max(none[ALL].error, none[CONTROL].error) <= most
    effects = with_effects(design, 30)
    assert max(effects[ALL].error, effects[CONTROL].error) <= 0.06 + 2 * np.sqrt(0.06 * 0.94 / 30)
    assert effects[ALL].power > effects[OWN].power
