"""Comparisons named before the runs: a study's contrasts, and each group with one control.

**Contrasts** are the pairs of a study's `gains` and `claims`, tested first and alone. Few questions
named ahead need a smaller correction than all pairs. In each metric, Holm's correction is over the
contrasts on this metric, whatever all pairs say; letters and tiers stay those of all pairs.

**A control** is compared with each other group by Dunnett's many-to-one test (Dunnett 1955, J. Am.
Stat. Assoc. 50), step-down (Dunnett and Tamhane 1991, Stat. Med. 10). The comparisons share the
control's error, so that their joint distribution asks for a smaller correction than Holm's. Each
comparison keeps its own p-value, with moderated variance and degrees of freedom. Only the
dependence between comparisons is modelled: as that of normal variables with the correlation of the
differences, by Monte Carlo with a fixed seed. With equal variances and many degrees of freedom this
is Dunnett's test.

An arm that spreads far more than the others may show a usual spread in its few seeds. If it is the
control, every comparison suffers. Three guards keep the family-wise error:

- The control's variance is not moderated to less than its own.
- Correlations count for at most MOST_CORRELATION, that of equal spreads. A larger one would come
  from a control that spreads more, and ask for a smaller correction.
- Of the degrees of freedom that moderation adds, a part is not counted: NOT_LENT / (seeds - 1)².

`python -m tests.analysis.stats.family_wise` checks the error and the power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.load.run_folders import Contrast
from analysis.stats.differences import (
    NAN,
    SIGNIFICANCE,
    PairedDifference,
    answer_columns,
    holm,
    p_values,
)
from analysis.stats.equivalence import with_equality
from analysis.stats.intervals import Estimate, Numbers

DRAWS = 100_000  # an adjusted p-value of .05 has a standard error of .0007
SEED = 0
MOST_CORRELATION = 0.5
NOT_LENT = 0.5

# Contrasts.


@dataclass(frozen=True)
class ContrastTest:
    """A contrast on one metric: the difference a - b, tested against -margin (0 without one).

    `p` is two-sided, and Holm's over the contrasts on this metric.
    """

    pair: PairedDifference
    margin: float
    p: float

    @property
    def answer(self) -> str:
        """above | below | not decided, against -margin."""
        if not self.p < SIGNIFICANCE:
            return "not decided"
        return "above" if self.pair.difference.mean > -self.margin else "below"


def contrast_tests(
    pairs: Sequence[PairedDifference], contrasts: Sequence[Contrast]
) -> list[ContrastTest]:
    """Return the contrasts whose groups are among the pairs, per metric.

    A contrast without its groups, because an arm was not run, still counts in the family.
    """
    tested: list[ContrastTest] = []
    for metric in dict.fromkeys(pair.metric for pair in pairs if contrasts):
        known = {(d.a, d.b): d for p in pairs if p.metric == metric for d in (p, p.reversed())}
        named: dict[tuple[str, str, float], None] = {}
        for contrast in contrasts:
            key = (contrast.a, contrast.b, contrast.margin)
            same = key in named or (not contrast.margin and (contrast.b, contrast.a, 0.0) in named)
            if contrast.metric in (None, metric) and not same:
                named[key] = None
        adjusted = holm([_p_value(known.get((a, b)), margin) for a, b, margin in named])
        tested += [
            ContrastTest(known[a, b], margin, p)
            for (a, b, margin), p in zip(named, adjusted, strict=True)
            if (a, b) in known
        ]
    return tested


def _p_value(pair: PairedDifference | None, margin: float) -> float:
    """Return the two-sided p-value of the difference against -margin."""
    if pair is None:
        return NAN
    shifted = replace(pair.estimate, mean=pair.estimate.mean + margin)
    return p_values([replace(pair, estimate=shifted)])[0]


def with_contrasts(
    pairs: Sequence[PairedDifference], tested: Sequence[ContrastTest]
) -> list[PairedDifference]:
    """Add `contrast_p` to the pairs that were named ahead to differ."""
    if not tested:
        return list(pairs)
    found = {
        (one.pair.metric, frozenset((one.pair.a, one.pair.b))): one.p
        for one in tested
        if not one.margin
    }
    return [
        replace(pair, contrast_p=found.get((pair.metric, frozenset((pair.a, pair.b))), NAN))
        for pair in pairs
    ]


def contrast_table(tested: Sequence[ContrastTest]) -> pd.DataFrame:
    """Return contrasts.csv: a row per contrast and metric; `difference` is a - b."""
    rows = [
        {
            "a": one.pair.a,
            "b": one.pair.b,
            "metric": one.pair.metric,
            "margin": one.margin,
            "difference": one.pair.difference.mean,
            "low": one.pair.difference.low,
            "high": one.pair.difference.high,
            "p": one.p,
            "answer": one.answer,
            "seeds": one.pair.seeds,
            "problems": one.pair.problems,
        }
        for one in tested
    ]
    return pd.DataFrame(rows)


# A control.


def control_differences(
    pairs: Sequence[PairedDifference], control: str | None, margin: float | None = None
) -> list[PairedDifference]:
    """Return group - control for each other group and metric, from all pairs of the groups.

    `adjusted_p` is Dunnett's over the comparisons with the control in the metric. `equal_p` is
    Holm's over the same comparisons. Empty without a control, or if it is not among the groups.
    """
    differences = []
    for metric in dict.fromkeys(pair.metric for pair in pairs if control in (pair.a, pair.b)):
        of_metric = [pair for pair in pairs if pair.metric == metric]
        family = [
            pair if pair.b == control else pair.reversed()
            for pair in of_metric
            if control in (pair.a, pair.b)
        ]
        guarded = [
            replace(pair, estimate=with_control(pair.estimate, pair.lowered[1])) for pair in family
        ]
        adjusted = step_down(p_values(guarded), correlation(guarded, of_metric))
        differences += [replace(d, adjusted_p=p) for d, p in zip(family, adjusted, strict=True)]
    return with_equality(differences, margin)


def with_control(difference: Estimate, lowered: Numbers) -> Estimate:
    """Return differences from a control with the variance and the freedom of their tests.

    `lowered` is what moderation took from the control's variance over seeds.
    """
    own = np.maximum(difference.seeds - 1, 1)
    lent = np.maximum(difference.seed_freedom - own, 0.0)
    return replace(
        difference,
        seed_variance=difference.seed_variance + lowered / np.maximum(difference.seeds, 1),
        seed_freedom=difference.seed_freedom - lent * NOT_LENT / own**2,
    )


def correlation(
    against: Sequence[PairedDifference], pairs: Sequence[PairedDifference]
) -> np.ndarray:
    """Return the correlation of the differences `against` one control, from all pairs."""
    labels = [one.a for one in against]
    variance = {label: {label: 0.0} for pair in pairs for label in (pair.a, pair.b)}
    for pair in pairs:
        variance[pair.a][pair.b] = variance[pair.b][pair.a] = _tested_variance(pair)
    between = np.array([[variance[x][y] for y in labels] for x in labels])
    return correlation_of(np.array([_tested_variance(one) for one in against]), between)


def _tested_variance(pair: PairedDifference) -> float:
    tested = pair.estimate.tested()
    return float(tested.seed_variance + tested.problem_variance) if pair.seeds > 1 else NAN


def correlation_of(own: np.ndarray, between: np.ndarray) -> np.ndarray:
    """Return the correlation from the variances to the control and between the groups.

    `own` is (groups,), `between` and the result (groups, groups): Cov(x - c, y - c) =
    (Var(x - c) + Var(y - c) - Var(x - y)) / 2. Unknown ones count as 0, which corrects more.
    """
    covariance = (own[:, None] + own - between) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        found = covariance / np.sqrt(own[:, None] * own)
    found = np.where(np.isfinite(found), found.clip(-1, MOST_CORRELATION), 0.0)
    np.fill_diagonal(found, 1.0)
    return found


def step_down(p: Sequence[float], correlation: np.ndarray) -> list[float]:
    """Return adjusted p-values of comparisons whose correlation is (comparisons, comparisons).

    The j-th least p-value is compared with the least one of those from the j-th on, under the null
    hypothesis. No result is above Holm's. NaN, for a test that could not be made, stays NaN and
    counts in the family.
    """
    from scipy.special import ndtri

    values, count = np.asarray(p, dtype=float), len(p)
    order = np.argsort(values)  # NaN is last
    sizes = _null_sizes(correlation[np.ix_(order, order)])
    greatest = np.maximum.accumulate(sizes[:, ::-1], axis=1)[:, ::-1]
    reached = ((greatest >= -ndtri(values[order] / 2)).sum(axis=0) + 1) / (DRAWS + 1)
    adjusted = np.empty(count)
    adjusted[order] = np.maximum.accumulate(
        np.minimum(reached, (count - np.arange(count)) * values[order])
    )
    return adjusted.tolist()


def _null_sizes(correlation: np.ndarray) -> np.ndarray:
    """Return (DRAWS, comparisons): |standard normal| differences without any true one."""
    # Variances of pairs with other seeds or problems may fit no common distribution exactly.
    sizes, directions = np.linalg.eigh(correlation)
    root = directions * np.sqrt(np.maximum(sizes, 0.0))
    root /= np.linalg.norm(root, axis=1, keepdims=True)
    draws = np.random.default_rng(SEED).standard_normal((DRAWS, len(correlation)))
    return np.abs(draws @ root.T)


def control_table(differences: Sequence[PairedDifference]) -> pd.DataFrame:
    """Return control.csv: a row per group and metric; `difference` is group - control."""
    rows = [
        {
            "group": pair.a,
            "control": pair.b,
            "metric": pair.metric,
            "difference": pair.difference.mean,
            "low": pair.difference.low,
            "high": pair.difference.high,
            "p": pair.adjusted_p,
            "seeds": pair.seeds,
            "problems": pair.problems,
        }
        for pair in differences
    ]
    return pd.DataFrame(rows).join(answer_columns(differences))
