"""Paired differences of every two groups of an experiment, and the tiers that follow from them.

Two groups are compared on their common seeds and problems; the spread over seeds is moderated over
the groups (`analysis.stats.moderation`). A metric that is not defined everywhere
(diversity among accepted programs) is compared where it is defined for both. Its difference is then
not that of the two groups' own means, which rest on other problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.metrics.definitions import metric_bounds
from analysis.metrics.evaluated_models import ScoredGroup
from analysis.metrics.scores import align_grids
from analysis.stats.intervals import (
    Estimate,
    Interval,
    estimate,
    probability_of_improvement,
    seed_means,
)
from analysis.stats.moderation import moderate, moderated_difference, seed_spread

SIGNIFICANCE = 0.05
NAN = float("nan")
COLUMNS = (
    *("a", "b", "metric", "difference", "low", "high"),
    *("probability_of_improvement", "seeds", "problems", "p"),
)
ANSWERS = ("above", "below", "equal", "not decided")
*_, EQUAL, UNDECIDED = ANSWERS


@dataclass(frozen=True)
class PairedDifference:
    """The difference a - b in one metric, on the seeds and problems of both.

    `improvement` is the probability that a run of a beats one of b on a problem. With one seed
    there is no interval and no p-value, because the algorithms' difference cannot be separated from
    training randomness. `lowered` is by how much moderation lowered the variances over the seeds of
    a and of b. `adjusted_p` is Holm's p-value over all pairs of the metric. The last five are NaN
    unless named ahead: Holm's p-value over the contrasts of the metric, the margin, that of
    equality within the margin, and how many seeds or problems an answer takes
    (`analysis.stats.named_pairs`, `equivalence` and `power`).
    """

    a: str
    b: str
    metric: str
    difference: Interval
    improvement: float
    seeds: int
    problems: int
    estimate: Estimate
    lowered: tuple[float, float] = (0.0, 0.0)
    adjusted_p: float = NAN
    contrast_p: float = NAN
    margin: float = NAN
    equal_p: float = NAN
    seeds_to_decide: float = NAN
    problems_to_decide: float = NAN

    @property
    def separated(self) -> bool:
        return self.adjusted_p < SIGNIFICANCE

    @property
    def answer(self) -> str:
        """above | below | equal | not decided; of a separated pair never equal."""
        if self.separated:
            return "above" if self.difference.mean > 0 else "below"
        return EQUAL if self.equal_p < SIGNIFICANCE else UNDECIDED

    def reversed(self) -> PairedDifference:
        """Return b - a."""
        d = self.difference
        return replace(
            self,
            a=self.b,
            b=self.a,
            difference=Interval(0 - d.mean, 0 - d.high, 0 - d.low),  # 0 - x is never -0.0
            improvement=1 - self.improvement,
            lowered=self.lowered[::-1],
        )


def paired_differences(
    groups: Sequence[ScoredGroup], metrics: Iterable[str]
) -> list[PairedDifference]:
    """Return every two groups once, in order, for each metric; p-values adjusted per metric."""
    differences = []
    for metric in metrics:
        family = _all_pairs(groups, metric)
        adjusted = holm(p_values(family))
        differences += [replace(d, adjusted_p=p) for d, p in zip(family, adjusted, strict=True)]
    return differences


def _all_pairs(groups: Sequence[ScoredGroup], metric: str) -> list[PairedDifference]:
    """Return every two groups once; each is compared with all later ones in one array operation."""
    labels = [group.label for group in groups]
    values, weights = align_grids([group.grids.get(metric) for group in groups])
    own, own_freedom = seed_spread(seed_means(values, weights).means)
    variances, freedom = moderate(own, own_freedom)
    lowered = np.nan_to_num(np.maximum(own - variances, 0.0)).tolist()
    differences = []
    for i, label in enumerate(labels[:-1]):
        later = slice(i + 1, None)
        common = (weights[i] > 0) & (weights[later] > 0)
        means = seed_means(values[i], np.where(common, weights[i], 0.0))
        later_means = seed_means(values[later], np.where(common, weights[later], 0.0))
        improvements = probability_of_improvement(
            np.where(common, values[i], NAN), np.where(common, values[later], NAN)
        )
        estimates = moderated_difference(
            estimate(means - later_means),
            (variances[i], freedom[i]),
            (variances[later], freedom[later]),
        )
        pairs = _pairs_with(label, labels[later], metric, estimates, improvements, common)
        both = zip(pairs, lowered[later], strict=True)
        differences += [replace(pair, lowered=(lowered[i], other)) for pair, other in both]
    return differences


def _pairs_with(
    label: str,
    others: Sequence[str],
    metric: str,
    estimates: Estimate,
    improvements: np.ndarray,
    common: np.ndarray,
) -> list[PairedDifference]:
    """Return label - other for each other group.

    `estimates` and `improvements` are (others,). `common` (others, seeds, problems) says where both
    groups are measured.
    """
    half_width, bound = estimates.half_width(), metric_bounds(metric)[1]
    low = np.maximum(estimates.mean - half_width, -bound)
    high = np.minimum(estimates.mean + half_width, bound)
    seeds, problems = common.any(axis=2).sum(axis=1), common.any(axis=1).sum(axis=1)
    differences = []
    for i, other in enumerate(others):
        scalar = estimates.item(i)
        ends = (float(low[i]), float(high[i])) if seeds[i] > 1 else (NAN, NAN)
        differences.append(
            PairedDifference(
                a=label,
                b=other,
                metric=metric,
                difference=Interval(float(scalar.mean), *ends),
                improvement=float(improvements[i]),
                seeds=int(seeds[i]),
                problems=int(problems[i]),
                estimate=scalar,
            )
        )
    return differences


def p_values(differences: Sequence[PairedDifference]) -> list[float]:
    """Return the two-sided p-value of each difference against 0; NaN with fewer than two seeds."""
    p = np.full(len(differences), NAN)
    tested = [i for i, difference in enumerate(differences) if difference.seeds > 1]
    if tested:
        p[tested] = Estimate.stack([differences[i].estimate for i in tested]).p_value()
    return p.tolist()


def difference_table(differences: Sequence[PairedDifference]) -> pd.DataFrame:
    """Return differences.csv: a row per ordered pair and metric; `difference` is a - b.

    `p_contrasts` is there if pairs were named ahead, `answer_columns` if a margin was.
    """
    ordered = [one for pair in differences for one in (pair, pair.reversed())]
    rows = []
    for pair in ordered:
        d = pair.difference
        counts = (pair.improvement, pair.seeds, pair.problems)
        rows.append((pair.a, pair.b, pair.metric, d.mean, d.low, d.high, *counts, pair.adjusted_p))
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    contrast_p = [pair.contrast_p for pair in ordered]
    if any(p == p for p in contrast_p):
        table["p_contrasts"] = contrast_p
    return table.join(answer_columns(ordered))


def answer_columns(differences: Sequence[PairedDifference]) -> pd.DataFrame:
    """Return margin, p_equal, answer, seeds_to_decide, problems_to_decide; none without a margin.

    A pair without a margin, of another metric than pass@k, has none of these.
    """
    if all(pair.margin != pair.margin for pair in differences):
        return pd.DataFrame(index=range(len(differences)))
    rows = []
    for pair in differences:
        decided = pair.answer != UNDECIDED
        rows.append(
            {
                "margin": pair.margin,
                "p_equal": pair.equal_p,
                "answer": pair.answer if pair.margin == pair.margin else None,
                "seeds_to_decide": NAN if decided else pair.seeds_to_decide,
                "problems_to_decide": NAN if decided else pair.problems_to_decide,
            }
        )
    return pd.DataFrame(rows)


# Tiers in place of ranks: groups that the data do not separate share one.


def tier_table(
    groups: Sequence[ScoredGroup], differences: Sequence[PairedDifference]
) -> pd.DataFrame:
    """Return tiers.csv: label, metric, tier, best first; tier 1 has the greatest means.

    A group on which the metric was not measured has no row.
    """
    rows = []
    for metric in dict.fromkeys(difference.metric for difference in differences):
        means = {
            group.label: mean_score(group, metric) for group in groups if metric in group.grids
        }
        greater_first = (
            pair if pair.difference.mean > 0 else pair.reversed()
            for pair in differences
            if pair.metric == metric
        )
        adjusted = {(pair.a, pair.b): pair.adjusted_p for pair in greater_first}
        rows += [(label, metric, tier) for label, tier in tiers(means, adjusted).items()]
    return pd.DataFrame(rows, columns=["label", "metric", "tier"])


def mean_score(group: ScoredGroup, metric: str) -> float:
    """Return a group's mean over seeds and problems; NaN where the metric was not measured."""
    grid = group.grids.get(metric)
    return NAN if grid is None else float(estimate(seed_means(grid.values, grid.weights)).mean)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p-values of a family of tests, in order (Holm 1979, Scand. J. Stat. 6).

    The probability that any adjusted p-value without a true difference is below 0.05 is at most
    5 %. NaN, for a test that could not be made, stays NaN and counts in the family.
    """
    order = sorted(range(len(p_values)), key=lambda i: (p_values[i] != p_values[i], p_values[i]))
    adjusted, least = list(p_values), 0.0
    for rank, i in enumerate(order):
        if p_values[i] == p_values[i]:
            least = max(least, min(1.0, (len(p_values) - rank) * p_values[i]))
            adjusted[i] = least
    return adjusted


def tiers(means: Mapping[str, float], p_values: Mapping[tuple[str, str], float]) -> dict[str, int]:
    """Return label → tier, tier 1 with the greatest mean; labels without a mean have none.

    `p_values` are adjusted and keyed by pairs (a, b) with a ahead where the two are compared. That
    is not always the greater mean, if a mean rests on other problems. A tier ends where every group
    above is separated from, and ahead of, every group below. If only A and C of A, B and C are
    separated, all share one tier, because B is separated from neither neighbour.
    """
    order = sorted((x for x in means if means[x] == means[x]), key=lambda x: -means[x])
    by_label: dict[str, int] = {}
    tier = 1
    for place, label in enumerate(order):
        above, below = order[:place], order[place:]
        if above and all(_is_ahead(p_values, a, b) for a in above for b in below):
            tier += 1
        by_label[label] = tier
    return by_label


def _is_ahead(p_values: Mapping[tuple[str, str], float], a: str, b: str) -> bool:
    return p_values.get((a, b), NAN) < SIGNIFICANCE
