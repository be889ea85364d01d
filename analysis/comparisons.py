"""Paired differences of groups: tests, letters and tiers, equality, contrasts, and a control.

Two groups are compared on their common seeds and problems; the spread over seeds is moderated over
the groups (`analysis.intervals`). A metric that is not defined everywhere (diversity among accepted
programs) is compared where it is defined for both. Its difference is then not that of the two
groups' own means, which rest on other problems.

**Equality** within a margin, named before the runs, by two one-sided tests (Schuirmann 1987): at
level .05, against -margin and against +margin, with the standard error and the degrees of freedom
of the difference's own test; both must reject. The families of differences and of equalities are
corrected each by itself: in all comparisons, at most 5 % have any equal pair called different, and
at most 5 % have any pair that differs by the margin called equal.

**Contrasts**, the pairs of `gains` and `claims` of a study, are tested first and alone. Few
questions named ahead need a smaller correction than all pairs. In each metric, Holm's correction
is over the contrasts on this metric, whatever all pairs say; letters and tiers stay those of all
pairs. A contrast of two differences, (a - b) - (c - d), is an **interaction**: is the effect of old
data larger for one algorithm than for another? Each seed has a value on each problem, so that seeds
and problems are paired over all four groups.

**A control** is compared with each other group by Dunnett's many-to-one test (Dunnett 1955, J. Am.
Stat. Assoc. 50), step-down (Dunnett and Tamhane 1991, Stat. Med. 10). The comparisons share the
control's error, so that their joint distribution asks for a smaller correction than Holm's. Each
comparison keeps its own p-value, with moderated variance and degrees of freedom. Only the
dependence between comparisons is modelled: as that of normal variables with the correlation of the
differences, by Monte Carlo with a fixed seed. With equal variances and many degrees of freedom this
is Dunnett's test. An arm that spreads far more than the others may show a usual spread in its few
seeds. If it is the control, every comparison suffers. Three guards keep the family-wise error:

- The control's variance is not moderated to less than its own.
- Correlations count for at most MOST_CORRELATION, that of equal spreads. A larger one would come
  from a control that spreads more, and ask for a smaller correction.
- Of the degrees of freedom that moderation adds, a part is not counted: NOT_LENT / (seeds - 1)².

tests/analysis/test_family_wise.py checks the errors.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase

import numpy as np
import pandas as pd
from scipy.special import ndtri

from analysis import intervals
from analysis.groups import ScoredGroup
from analysis.metrics import align_grids, metric_bounds
from analysis.runs import Contrast

SIGNIFICANCE = 0.05
NAN = float("nan")
ANSWERS = ("above", "below", "equal", "not decided")
*_, EQUAL, UNDECIDED = ANSWERS
DRAWS = 100_000  # an adjusted p-value of .05 has a standard error of .0007
MOST_CORRELATION = 0.5
NOT_LENT = 0.5
DIFFERENCE = re.compile(r"\((.+) - (.+)\)")  # a side of an interaction


@dataclass(frozen=True)
class PairedDifference:
    """The difference a - b in one metric, on the seeds and problems of both.

    `improvement` is the probability that a run of a beats one of b on a problem. With one seed
    there is no interval and no p-value, because the algorithms' difference cannot be separated from
    training randomness. `lowered` is by how much moderation lowered the variances over the seeds of
    a and of b. `adjusted_p` is Holm's p-value over all pairs of the metric. The last five are NaN
    unless named ahead: Holm's p-value over the contrasts of the metric, the margin, that of
    equality within the margin, and how many seeds or problems an answer takes.
    """

    a: str
    b: str
    metric: str
    difference: intervals.Interval
    improvement: float
    seeds: int
    problems: int
    estimate: intervals.Estimate
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
    def corrected_p(self) -> float:
        """Holm's p-value over the contrasts if the pair is one of them, else over all pairs."""
        return self.adjusted_p if np.isnan(self.contrast_p) else self.contrast_p

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
            difference=intervals.Interval(0 - d.mean, 0 - d.high, 0 - d.low),  # 0 - x is never -0.0
            improvement=1 - self.improvement,
            lowered=self.lowered[::-1],
        )


def paired_differences(
    groups: Sequence[ScoredGroup], metrics: Iterable[str]
) -> list[PairedDifference]:
    """Return every two groups once, in order, for each metric; p-values adjusted per metric."""
    return [one for metric in metrics for one in holm_corrected(_all_pairs(groups, metric))]


def _all_pairs(groups: Sequence[ScoredGroup], metric: str) -> list[PairedDifference]:
    """Return every two groups once; each is compared with all later ones in one array operation."""
    labels = [group.label for group in groups]
    values, weights, own, variances, freedom = _moderated(groups, metric)
    lowered = np.nan_to_num(np.maximum(own - variances, 0.0)).tolist()
    bound, differences = metric_bounds(metric)[1], []
    for i, label in enumerate(labels[:-1]):
        later = slice(i + 1, None)
        common = (weights[i] > 0) & (weights[later] > 0)
        means = intervals.seed_means(values[i], np.where(common, weights[i], 0.0))
        later_means = intervals.seed_means(values[later], np.where(common, weights[later], 0.0))
        improvements = intervals.probability_of_improvement(
            np.where(common, values[i], NAN), np.where(common, values[later], NAN)
        )
        estimates = intervals.moderated_difference(
            intervals.estimate(means - later_means),
            (variances[i], freedom[i]),
            (variances[later], freedom[later]),
        )
        half_width = estimates.half_width()
        low = np.maximum(estimates.mean - half_width, -bound)
        high = np.minimum(estimates.mean + half_width, bound)
        seeds, problems = common.any(axis=2).sum(axis=1), common.any(axis=1).sum(axis=1)
        for j, other in enumerate(labels[later]):
            scalar = estimates.item(j)
            ends = (float(low[j]), float(high[j])) if seeds[j] > 1 else (NAN, NAN)
            differences.append(
                PairedDifference(
                    a=label,
                    b=other,
                    metric=metric,
                    difference=intervals.Interval(float(scalar.mean), *ends),
                    improvement=float(improvements[j]),
                    seeds=int(seeds[j]),
                    problems=int(problems[j]),
                    estimate=scalar,
                    lowered=(lowered[i], lowered[i + 1 + j]),
                )
            )
    return differences


def _moderated(groups: Sequence[ScoredGroup], metric: str) -> tuple[np.ndarray, ...]:
    """Return aligned values and weights; variances over seeds, the same moderated, and freedom."""
    values, weights = align_grids([group.grids.get(metric) for group in groups])
    own, own_freedom = intervals.seed_spread(intervals.seed_means(values, weights).means)
    return values, weights, own, *intervals.moderate(own, own_freedom)


def interactions(
    groups: Sequence[ScoredGroup], contrasts: Sequence[Contrast]
) -> list[PairedDifference]:
    """Return the contrasts between two differences, `(a - b)` and `(c - d)`, of these groups.

    One whose metric or group is missing is left out. `improvement` is NaN.
    """
    found = []
    for contrast in contrasts:
        metric = contrast.metric or ""
        place = {group.label: i for i, group in enumerate(groups) if metric in group.grids}
        sides = [DIFFERENCE.fullmatch(side) for side in (contrast.a, contrast.b)]
        names = [name for side in sides if side for name in side.groups()]
        if len(names) != 4 or not set(names) <= set(place):
            continue
        arms = [place[name] for name in names]
        values, weights, _, variances, freedom = _moderated(groups, metric)
        common = np.all(weights[arms] > 0, axis=0)
        a, b, c, d = (intervals.seed_means(values[i], weights[i] * common) for i in arms)
        estimate = intervals.moderated_difference(
            intervals.estimate((a - b) - (c - d)), *((variances[i], freedom[i]) for i in arms)
        )
        mean, seeds = float(estimate.mean), int(common.any(axis=1).sum())
        half = float(estimate.half_width()) if seeds > 1 else NAN
        found.append(
            PairedDifference(
                a=contrast.a,
                b=contrast.b,
                metric=metric,
                difference=intervals.Interval(mean, mean - half, mean + half),
                improvement=NAN,
                seeds=seeds,
                problems=int(common.any(axis=0).sum()),
                estimate=estimate,
            )
        )
    return found


def p_values(differences: Sequence[PairedDifference]) -> list[float]:
    """Return the two-sided p-value of each difference against 0; NaN with fewer than two seeds."""
    p = np.full(len(differences), NAN)
    tested = [i for i, difference in enumerate(differences) if difference.seeds > 1]
    if tested:
        p[tested] = intervals.Estimate.stack([differences[i].estimate for i in tested]).p_value()
    return p.tolist()


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p-values of a family of tests, in order (Holm 1979, Scand. J. Stat. 6).

    The probability that any adjusted p-value without a true difference is below 0.05 is at most
    5 %. NaN, for a test that could not be made, stays NaN and counts in the family, unlike in
    statsmodels' `multipletests`.
    """
    order = sorted(range(len(p_values)), key=lambda i: (p_values[i] != p_values[i], p_values[i]))
    adjusted, least = list(p_values), 0.0
    for rank, i in enumerate(order):
        if p_values[i] == p_values[i]:
            least = max(least, min(1.0, (len(p_values) - rank) * p_values[i]))
            adjusted[i] = least
    return adjusted


def holm_corrected(family: Sequence[PairedDifference]) -> list[PairedDifference]:
    """Return a family of differences with the p-values that `holm` adjusts."""
    return [replace(d, adjusted_p=p) for d, p in zip(family, holm(p_values(family)), strict=True)]


def find_pair(pairs: Sequence[PairedDifference], a: str, b: str) -> PairedDifference:
    """Return a - b from pairs of either order. Raises KeyError if there is none."""
    for pair in pairs:
        if (pair.a, pair.b) == (a, b):
            return pair
        if (pair.a, pair.b) == (b, a):
            return pair.reversed()
    raise KeyError((a, b))


def mean_score(group: ScoredGroup, metric: str) -> float:
    """Return a group's mean over seeds and problems; NaN where the metric was not measured."""
    grid = group.grids.get(metric)
    if grid is None:
        return NAN
    return float(intervals.estimate(intervals.seed_means(grid.values, grid.weights)).mean)


# Tables of differences.


def _row(pair: PairedDifference, p: float) -> dict[str, object]:
    d = pair.difference
    ends = {"difference": d.mean, "low": d.low, "high": d.high}
    return {**ends, "p": p, "seeds": pair.seeds, "problems": pair.problems}


def difference_table(differences: Sequence[PairedDifference]) -> pd.DataFrame:
    """Return differences.csv: a row per ordered pair and metric; `difference` is a - b.

    `p_contrasts` is there if pairs were named ahead, `answer_columns` if a margin was.
    """
    ordered = [one for pair in differences for one in (pair, pair.reversed())]
    columns = ["a", "b", "metric", "difference", "low", "high"]
    columns += ["probability_of_improvement", "seeds", "problems", "p"]
    rows = [
        {"a": pair.a, "b": pair.b, "metric": pair.metric}
        | _row(pair, pair.adjusted_p)
        | {"probability_of_improvement": pair.improvement}
        for pair in ordered
    ]
    table = pd.DataFrame(rows, columns=columns)
    if any(pair.contrast_p == pair.contrast_p for pair in ordered):
        table["p_contrasts"] = [pair.contrast_p for pair in ordered]
    return table.join(answer_columns(ordered))


def answer_columns(differences: Sequence[PairedDifference]) -> pd.DataFrame:
    """Return margin, p_equal, answer, seeds_to_decide, problems_to_decide; none without a margin.

    A pair without a margin, of another metric than pass@k, has none of these.
    """
    if all(pair.margin != pair.margin for pair in differences):
        return pd.DataFrame(index=range(len(differences)))
    columns = ["margin", "p_equal", "answer", "seeds_to_decide", "problems_to_decide"]
    rows = []
    for pair in differences:
        needs = (pair.seeds_to_decide, pair.problems_to_decide)
        answer = pair.answer if pair.margin == pair.margin else None
        needs = needs if pair.answer == UNDECIDED else (NAN, NAN)
        rows.append((pair.margin, pair.equal_p, answer, *needs))
    return pd.DataFrame(rows, columns=columns)


# Tiers and letters in place of ranks: groups that the data do not separate share one.


def _best_first(
    groups: Sequence[ScoredGroup], differences: Sequence[PairedDifference]
) -> Iterable[tuple[str, dict[str, float], list[PairedDifference]]]:
    """Yield each metric, its means by label, the greatest first, and its pairs."""
    for metric in dict.fromkeys(difference.metric for difference in differences):
        means = {g.label: mean_score(g, metric) for g in groups if metric in g.grids}
        order = sorted((x for x in means if means[x] == means[x]), key=lambda x: -means[x])
        pairs = [pair for pair in differences if pair.metric == metric]
        yield metric, {label: means[label] for label in order}, pairs


def tier_table(
    groups: Sequence[ScoredGroup], differences: Sequence[PairedDifference]
) -> pd.DataFrame:
    """Return tiers.csv: label, metric, tier, best first; tier 1 has the greatest means.

    A group on which the metric was not measured has no row.
    """
    rows = []
    for metric, means, pairs in _best_first(groups, differences):
        greater_first = (pair if pair.difference.mean > 0 else pair.reversed() for pair in pairs)
        adjusted = {(pair.a, pair.b): pair.adjusted_p for pair in greater_first}
        rows += [(label, metric, tier) for label, tier in tiers(means, adjusted).items()]
    return pd.DataFrame(rows, columns=["label", "metric", "tier"])


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
        ahead = (p_values.get((a, b), NAN) < SIGNIFICANCE for a in above for b in below)
        tier += bool(above) and all(ahead)
        by_label[label] = tier
    return by_label


def letter_table(
    groups: Sequence[ScoredGroup], differences: Sequence[PairedDifference]
) -> pd.DataFrame:
    """Return letters.csv: label, metric, mean, letters, best first in each metric.

    A group on which the metric was not measured has no row. A metric without any test, as with one
    seed, has none.
    """
    rows = []
    for metric, means, pairs in _best_first(groups, differences):
        if any(pair.adjusted_p == pair.adjusted_p for pair in pairs):
            shown = letters(list(means), [(pair.a, pair.b) for pair in pairs if pair.separated])
            rows += [(label, metric, mean, shown[label]) for label, mean in means.items()]
    return pd.DataFrame(rows, columns=["label", "metric", "mean", "letters"])


def letters(order: Sequence[str], separated: Collection[tuple[str, str]]) -> dict[str, str]:
    """Return label → letters, "a" for the first of `order`; `separated` are pairs of labels.

    Compact letter display (Piepho 2004, J. Comput. Graph. Stat. 13) by insert and absorb: all begin
    with one letter. A separated pair that shares a letter splits it in two, one without each of the
    pair; a letter whose groups all share another one is dropped.
    """
    shared = [frozenset(order)]
    for a, b in separated:
        split: list[frozenset[str]] = []
        for members in shared:
            split += [members - {a}, members - {b}] if {a, b} <= members else [members]
        distinct = list(dict.fromkeys(split))
        shared = [one for one in distinct if not any(one < other for other in distinct)]
    place = {label: i for i, label in enumerate(order)}
    shared.sort(key=lambda members: sorted(place[label] for label in members))
    rounds = range(1, len(shared) // len(ascii_lowercase) + 2)
    names = [letter + (str(n) if n > 1 else "") for n in rounds for letter in ascii_lowercase]
    named = dict(zip(shared, names, strict=False))
    return {label: "".join(named[m] for m in shared if label in m) for label in order}


# Equality within a margin.


def equality_p_values(differences: intervals.Estimate, margin: intervals.Numbers) -> np.ndarray:
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
    added = list(differences)
    if margin is None:
        return added
    for metric in dict.fromkeys(d.metric for d in added if d.metric.startswith("pass@")):
        places = [i for i, pair in enumerate(differences) if pair.metric == metric]
        estimates = intervals.Estimate.stack([differences[i].estimate for i in places])
        tested = np.array([differences[i].seeds > 1 for i in places])
        p = holm(np.where(tested, equality_p_values(estimates, margin), NAN).tolist())
        needed = intervals.resources_to_decide(estimates, margin, len(places))
        seeds, problems = (np.where(tested, needed[w], NAN) for w in ("seeds", "problems"))
        for j, i in enumerate(places):
            added[i] = replace(
                differences[i],
                margin=margin,
                equal_p=p[j],
                seeds_to_decide=float(seeds[j]),
                problems_to_decide=float(problems[j]),
            )
    return added


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
            return UNDECIDED
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
    found = {(c.pair.metric, frozenset((c.pair.a, c.pair.b))): c.p for c in tested if not c.margin}
    return [
        replace(pair, contrast_p=found.get((pair.metric, frozenset((pair.a, pair.b))), NAN))
        for pair in pairs
    ]


def contrast_table(tested: Sequence[ContrastTest]) -> pd.DataFrame:
    """Return contrasts.csv: a row per contrast and metric; `difference` is a - b."""
    table = pd.DataFrame(
        {"a": one.pair.a, "b": one.pair.b, "metric": one.pair.metric, "margin": one.margin}
        | _row(one.pair, one.p)
        | {"answer": one.answer}
        for one in tested
    )
    ends = ["seeds", "problems"] if len(table) else []
    return table[[*table.columns.difference(ends, sort=False), *ends]]


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


def with_control(difference: intervals.Estimate, lowered: intervals.Numbers) -> intervals.Estimate:
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
    """Return the correlation (groups, groups) of the differences `against` one control.

    `pairs` are all pairs of the groups. Unknown correlations count as 0, which corrects more.
    """
    labels = [one.a for one in against]
    variance = {label: {label: 0.0} for pair in pairs for label in (pair.a, pair.b)}
    for pair in pairs:
        variance[pair.a][pair.b] = variance[pair.b][pair.a] = _tested_variance(pair)
    own = np.array([_tested_variance(one) for one in against])
    # Cov(x - c, y - c) = (Var(x - c) + Var(y - c) - Var(x - y)) / 2
    between = np.array([[variance[x][y] for y in labels] for x in labels])
    covariance = (own[:, None] + own - between) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        found = covariance / np.sqrt(own[:, None] * own)
    found = np.where(np.isfinite(found), found.clip(-1, MOST_CORRELATION), 0.0)
    np.fill_diagonal(found, 1.0)
    return found


def _tested_variance(pair: PairedDifference) -> float:
    tested = pair.estimate.tested()
    return float(tested.seed_variance + tested.problem_variance) if pair.seeds > 1 else NAN


def step_down(p: Sequence[float], correlation: np.ndarray) -> list[float]:
    """Return adjusted p-values of comparisons whose correlation is (comparisons, comparisons).

    The j-th least p-value is compared with the least one of those from the j-th on, under the null
    hypothesis. No result is above Holm's. NaN, for a test that could not be made, stays NaN and
    counts in the family.
    """
    values, count = np.asarray(p, dtype=float), len(p)
    order = np.argsort(values)  # NaN is last
    # Variances of pairs with other seeds or problems may fit no common distribution exactly.
    sizes, directions = np.linalg.eigh(correlation[np.ix_(order, order)])
    root = directions * np.sqrt(np.maximum(sizes, 0.0))
    root /= np.linalg.norm(root, axis=1, keepdims=True)
    null = np.abs(np.random.default_rng(0).standard_normal((DRAWS, count)) @ root.T)
    greatest = np.maximum.accumulate(null[:, ::-1], axis=1)[:, ::-1]
    reached = ((greatest >= -ndtri(values[order] / 2)).sum(axis=0) + 1) / (DRAWS + 1)
    adjusted = np.empty(count)
    adjusted[order] = np.maximum.accumulate(
        np.minimum(reached, (count - np.arange(count)) * values[order])
    )
    return adjusted.tolist()


def control_table(differences: Sequence[PairedDifference]) -> pd.DataFrame:
    """Return control.csv: a row per group and metric; `difference` is group - control."""
    rows = [
        {"group": pair.a, "control": pair.b, "metric": pair.metric} | _row(pair, pair.adjusted_p)
        for pair in differences
    ]
    return pd.DataFrame(rows).join(answer_columns(differences))
