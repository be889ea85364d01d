"""Equality within a margin: two one-sided tests of each difference (Schuirmann 1987).

"Not separated" is not "equal". With a margin named before the runs, a difference of at most the
margin does not matter, and a pair has one of four answers: above, below, equal within the margin,
or not decided. The tests are one-sided at level .05, against -margin and against +margin, with the
standard error and the degrees of freedom of the difference's own test; both must reject. Holm's
correction is over the pairs of a metric, as for the differences. The two families are corrected
each by itself: in all comparisons, at most 5 % have any equal pair called different, and at most
5 % have any pair that differs by the margin called equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.stats.differences import NAN, PairedDifference, holm
from analysis.stats.intervals import Estimate, Numbers
from analysis.stats.power import resources_to_decide


def equality_p_values(differences: Estimate, margin: Numbers) -> np.ndarray:
    """Return the p-value of |difference| >= margin: the greater one of the two one-sided tests.

    Below .05 where the 90 % interval lies inside (-margin, margin); NaN with one problem.
    """
    inside = margin - np.abs(differences.mean)  # distance to the nearer bound
    two_sided = replace(differences, mean=inside).p_value()
    return np.where(inside > 0, two_sided / 2, 1 - two_sided / 2)


def with_equality(
    differences: Sequence[PairedDifference], margin: float | None
) -> list[PairedDifference]:
    """Add p-values of equality, and what deciding takes, to the pass@k differences of a family.

    Holm's correction is per metric. Other metrics, and everything without a margin, stay as they
    are: a margin in shares of problems says nothing about edit distances.
    """
    if margin is None:
        return list(differences)
    added: dict[int, PairedDifference] = {}
    for metric in dict.fromkeys(pair.metric for pair in differences):
        places = [i for i, pair in enumerate(differences) if pair.metric == metric]
        if metric.startswith("pass@"):
            family = _family_with_equality([differences[i] for i in places], margin)
            added |= dict(zip(places, family, strict=True))
    return [added.get(i, pair) for i, pair in enumerate(differences)]


def _family_with_equality(
    family: Sequence[PairedDifference], margin: float
) -> list[PairedDifference]:
    """Add the equality of one metric's pairs."""
    estimates = Estimate.stack([pair.estimate for pair in family])
    tested = np.array([pair.seeds > 1 for pair in family])
    p = np.where(tested, equality_p_values(estimates, margin), NAN)
    needed = resources_to_decide(estimates, margin, len(family))
    return [
        replace(
            pair,
            margin=margin,
            equal_p=adjusted,
            seeds_to_decide=float(needed["seeds"][i]) if tested[i] else NAN,
            problems_to_decide=float(needed["problems"][i]) if tested[i] else NAN,
        )
        for i, (pair, adjusted) in enumerate(zip(family, holm(p.tolist()), strict=True))
    ]
