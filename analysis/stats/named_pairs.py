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
is Dunnett's test. `python -m tests.analysis.stats.named_ahead` compares it with Holm's correction.
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

DRAWS = 100_000  # an adjusted p-value of .05 has a standard error of .0007
SEED = 0

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
        labels = [pair.a for pair in family]
        adjusted = step_down(p_values(family), correlation(of_metric, labels, str(control)))
        differences += [replace(d, adjusted_p=p) for d, p in zip(family, adjusted, strict=True)]
    return with_equality(differences, margin)


def correlation(
    pairs: Sequence[PairedDifference], labels: Sequence[str], control: str
) -> np.ndarray:
    """Return the correlation (groups, groups) of the differences between groups and the control.

    Cov(x - c, y - c) = (Var(x - c) + Var(y - c) - Var(x - y)) / 2. Unknown ones count as 0, which
    corrects more.
    """
    variance = {label: {label: 0.0} for label in (*labels, control)}
    for pair in pairs:
        tested = pair.estimate.tested()
        known = float(tested.seed_variance + tested.problem_variance) if pair.seeds > 1 else np.nan
        variance[pair.a][pair.b] = variance[pair.b][pair.a] = known
    own = np.array([variance[label][control] for label in labels])
    between = np.array([[variance[x][y] for y in labels] for x in labels]).reshape(own.size, -1)
    covariance = (own[:, None] + own - between) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        found = covariance / np.sqrt(own[:, None] * own)
    found = np.where(np.isfinite(found), found.clip(-1, 1), 0.0)
    np.fill_diagonal(found, 1.0)
    return found


def step_down(p: Sequence[float], correlation: np.ndarray) -> list[float]:
    """Return adjusted p-values of comparisons whose correlation is (comparisons, comparisons).

    The j-th least p-value is compared with the least one of those from the j-th on, under the null
    hypothesis. No result is above Holm's. NaN, for a test that could not be made, stays NaN and
    counts in the family.
    """
    values, count = np.asarray(p, dtype=float), len(p)
    order = np.argsort(values)  # NaN is last
    tails = _null_p_values(correlation[np.ix_(order, order)])
    least = np.minimum.accumulate(tails[:, ::-1], axis=1)[:, ::-1]
    reached = ((least <= values[order]).sum(axis=0) + 1) / (DRAWS + 1)
    adjusted = np.empty(count)
    adjusted[order] = np.maximum.accumulate(
        np.minimum(reached, (count - np.arange(count)) * values[order])
    )
    return adjusted.tolist()


def _null_p_values(correlation: np.ndarray) -> np.ndarray:
    """Return (DRAWS, comparisons) two-sided p-values without any true difference."""
    from scipy.special import ndtr

    # Variances of pairs with other seeds or problems may fit no common distribution exactly.
    sizes, directions = np.linalg.eigh(correlation)
    root = directions * np.sqrt(np.maximum(sizes, 0.0))
    root /= np.linalg.norm(root, axis=1, keepdims=True)
    draws = np.random.default_rng(SEED).standard_normal((DRAWS, len(correlation)))
    return 2 * ndtr(-np.abs(draws @ root.T))


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
