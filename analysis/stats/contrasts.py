"""Contrasts named before the runs, of a study's `gains` and `claims`: tested first and alone.

Few questions named ahead need a smaller correction than all pairs. In each metric, Holm's
correction is over the contrasts on this metric, whatever all pairs say; letters and tiers stay
those of all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from analysis.load.run_folders import Contrast
from analysis.stats.differences import NAN, SIGNIFICANCE, PairedDifference, holm, p_values


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
