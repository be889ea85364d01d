"""Paired differences of every two groups of an experiment, and the tiers that come of them.

Two groups are compared on the seeds and problems of both. A metric that is not defined everywhere
(diversity among accepted programs) is compared where it is defined for both, so that its
difference is not that of the two groups' own means, which rest on other problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.metrics.definitions import metric_bounds
from analysis.metrics.evaluated_models import ScoredGroup
from analysis.metrics.scores import align_grids
from analysis.stats.intervals import Interval, Spread, probability_of_improvement, spread, terms

COLUMNS = ("a", "b", "metric", "difference", "low", "high", "probability_of_improvement")
COLUMNS += ("seeds", "problems")
NAN = float("nan")


@dataclass(frozen=True)
class Pair:
    """The difference a - b in one metric. Where nothing is shared `spread` is None.

    With one seed there is no interval and no p-value, since nothing tells the algorithms'
    difference from training's luck. `adjusted` is Holm's over all pairs of the metric.
    """

    a: str
    b: str
    metric: str
    difference: Interval
    improvement: float
    seeds: int
    problems: int
    spread: Spread | None = None
    adjusted: float = NAN

    @property
    def apart(self) -> bool:
        return self.adjusted < SIGNIFICANCE

    def turned(self) -> Pair:
        """b - a."""
        d = self.difference
        turned = Interval(0 - d.mean, 0 - d.high, 0 - d.low)  # no -0.0
        return replace(
            self, a=self.b, b=self.a, difference=turned, improvement=1 - self.improvement
        )


def pairs(groups: Sequence[ScoredGroup], metrics: Iterable[str]) -> list[Pair]:
    """Every two groups once, in their order, for each metric; p-values adjusted within metrics."""
    found = []
    for metric in metrics:
        family = _family(groups, metric)
        adjusted = holm(p_values(family))
        found += [replace(one, adjusted=p) for one, p in zip(family, adjusted, strict=True)]
    return found


def _family(groups: Sequence[ScoredGroup], metric: str) -> list[Pair]:
    """Every two groups once; each beside all that come after it, in one pass over the arrays."""
    labels = [group.label for group in groups]
    values, weights = align_grids([group.grids.get(metric) for group in groups])
    found = []
    for place in range(len(groups) - 1):
        rest = slice(place + 1, None)
        both = (weights[place] > 0) & (weights[rest] > 0)
        of_a, of_b = ((values[part], np.where(both, weights[part], 0.0)) for part in (place, rest))
        found += _pairs(labels[place], labels[rest], metric, both, of_a, of_b)
    return found


def _pairs(
    a: str,
    others: Sequence[str],
    metric: str,
    both: np.ndarray,
    of_a: tuple[np.ndarray, np.ndarray],
    of_b: tuple[np.ndarray, np.ndarray],
) -> list[Pair]:
    """a beside each of the others: arrays (others, seeds, problems), of values and weights; the
    values of a are the same beside all, (seeds, problems)."""
    found = spread(terms(*of_a) - terms(*of_b))
    half, most = found.half_width(), metric_bounds(metric)[1]
    low, high = np.maximum(found.mean - half, -most), np.minimum(found.mean + half, most)
    improvement = probability_of_improvement(*(np.where(both, of[0], NAN) for of in (of_a, of_b)))
    seeds, problems = both.any(axis=2).sum(axis=1), both.any(axis=1).sum(axis=1)
    made = []
    for i, b in enumerate(others):
        if not seeds[i]:
            made.append(Pair(a, b, metric, Interval(NAN, NAN, NAN), NAN, 0, 0))
            continue
        ends = (float(low[i]), float(high[i])) if seeds[i] > 1 else (NAN, NAN)
        difference = Interval(float(found.mean[i]), *ends)
        numbers = float(improvement[i]), int(seeds[i]), int(problems[i])
        made.append(Pair(a, b, metric, difference, *numbers, found.at(i)))
    return made


def p_values(found: Sequence[Pair]) -> list[float]:
    """Two-sided, of each difference against 0, all at once; NaN with one seed or nothing shared."""
    p = np.full(len(found), NAN)
    tested = [i for i, one in enumerate(found) if one.seeds > 1]
    if tested:
        p[tested] = Spread.of([found[i].spread for i in tested]).p_value()
    return p.tolist()


def difference_table(found: Iterable[Pair]) -> pd.DataFrame:
    """differences.csv: a row for each ordered pair and metric; `difference` is a - b."""
    rows = []
    for one in found:
        for way in (one, one.turned()):
            d = way.difference
            counts = (way.improvement, way.seeds, way.problems)
            rows.append((way.a, way.b, way.metric, d.mean, d.low, d.high, *counts))
    return pd.DataFrame(rows, columns=COLUMNS)


def tier_table(groups: Sequence[ScoredGroup], found: Sequence[Pair]) -> pd.DataFrame:
    """tiers.csv: label, metric, tier, where 1 has the greatest means; best first.

    A group on which the metric was not measured has no row.
    """
    rows = []
    for metric in dict.fromkeys(one.metric for one in found):
        means = {
            group.label: float(
                spread(terms(group.grids[metric].values, group.grids[metric].weights)).mean
            )
            for group in groups
            if metric in group.grids
        }
        greater_first = (
            one if one.difference.mean > 0 else one.turned()
            for one in found
            if one.metric == metric
        )
        of_metric = {(one.a, one.b): one.adjusted for one in greater_first}
        rows += [(label, metric, tier) for label, tier in tiers(means, of_metric).items()]
    return pd.DataFrame(rows, columns=["label", "metric", "tier"])


# Tiers instead of ranks: groups that the data do not separate share one.


SIGNIFICANCE = 0.05


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of a family of comparisons (Holm 1979, Scand. J. Stat. 6), in their order.

    The chance that any of those without a true difference is below 0.05 is at most 5 %. A NaN, for
    a comparison that could not be made, stays one and counts in the family.
    """
    order = sorted(range(len(p_values)), key=lambda i: (p_values[i] != p_values[i], p_values[i]))
    adjusted, least = list(p_values), 0.0
    for place, i in enumerate(order):
        if p_values[i] == p_values[i]:
            least = max(least, min(1.0, (len(p_values) - place) * p_values[i]))
            adjusted[i] = least
    return adjusted


def tiers(means: Mapping[str, float], p_values: Mapping[tuple[str, str], float]) -> dict[str, int]:
    """label → tier, 1 that of the greatest mean; labels without a mean have none.

    `p_values` are adjusted, of pairs (a, b) of which a has the greater value where the two are
    compared: which is not always the greater mean, where a mean is over problems of its own. A
    tier ends where every group above lies apart from, and above, every group below: of A, B and C
    with only A and C apart, all share one tier, since neither neighbour of B can be told from it.
    """
    order = sorted((x for x in means if means[x] == means[x]), key=lambda x: -means[x])
    found: dict[str, int] = {}
    tier = 1
    for place, label in enumerate(order):
        above, below = order[:place], order[place:]
        if above and all(_above(p_values, a, b) for a in above for b in below):
            tier += 1
        found[label] = tier
    return found


def _above(p_values: Mapping[tuple[str, str], float], a: str, b: str) -> bool:
    return p_values.get((a, b), float("nan")) < SIGNIFICANCE
