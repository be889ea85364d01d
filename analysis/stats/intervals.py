"""Intervals for means over seeds and problems, and for paired differences of two of them.

A seed is one trained model that answers every problem, so its luck is shared by all of them, and a
problem's difficulty is shared by all seeds: the design is crossed, with both drawn at random. The
mean's variance has two parts: that of the problems, with all that is drawn anew for each pair of
seed and problem (the samples), which is seen in the spread over problems of the mean over seeds;
and that of the seeds' luck, which is what the spread over seeds has beyond its share of the former
(the mean squares of a two-way layout, Searle, Casella and McCulloch 1992, ch. 4).

The half-width of an interval is √(t²_{S-1} · seeds + t²_{n-1} · problems): each part with the
quantile of its own degrees of freedom, as Howe (1974, J. Am. Stat. Assoc. 69) has it for a sum of
two estimates. `python -m analysis.simulate` holds it to account: at 3 and 5 seeds it covers the
truth in 93 to 97 of 100 cases, for groups and for pairs, where a percentile bootstrap over 3 seeds
and a t-interval with Satterthwaite's degrees of freedom are too narrow, the more so the more seeds
differ.

Ratios (a mean weighted by accepted programs, or over problems on which it is defined) enter
by their first-order terms, and problems count by Kish's effective number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

LEVEL = 0.95
BY_CHANCE = 0.4  # mean of max(chi²/f - 1, 0) for f = 1 to 4 degrees of freedom, 2 to 5 seeds, about
SMALLEST_LOG_P = -30.0


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the ends of its interval; all NaN where nothing could be measured."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Terms:
    """A weighted mean over problems for each seed, and what each problem adds to it.

    `means` (…, seeds), NaN for a seed that measured nothing; `parts` (…, seeds, problems), whose
    sum over problems is 0; `shares` (…, seeds, problems), the weights as shares of each seed's.
    """

    means: np.ndarray
    parts: np.ndarray
    shares: np.ndarray

    def __sub__(self, other: Terms) -> Terms:
        shares = (self.shares + other.shares) / 2
        return Terms(self.means - other.means, self.parts - other.parts, shares)


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds, and the parts of its variance; arrays of one shape (…).

    `of_rest` is the part of `of_problems` that is drawn anew for each seed. With one seed
    `of_seeds` and `of_rest` are 0: nothing can be known of them. `problems` is an effective number.
    """

    mean: np.ndarray
    of_seeds: np.ndarray
    of_problems: np.ndarray
    of_rest: np.ndarray
    seeds: np.ndarray
    problems: np.ndarray

    @classmethod
    def of(cls, spreads: Sequence[Spread]) -> Spread:
        """These of scalars as one of arrays (spreads,)."""
        return cls(*(np.array([getattr(one, f.name) for one in spreads]) for f in fields(cls)))

    def at(self, place: int) -> Spread:
        """One of an array of them."""
        return Spread(*(getattr(self, f.name)[place] for f in fields(self)))

    def half_width(self, level: float = LEVEL) -> np.ndarray:
        """Of the interval around `mean`; NaN with one problem."""
        return self.reach((1 + level) / 2)

    def reach(self, quantile: float | np.ndarray) -> np.ndarray:
        """How far above `mean` the quantile lies, Howe's way."""
        from scipy.special import stdtrit

        of_seeds = np.where(self.seeds > 1, stdtrit(np.maximum(self.seeds - 1, 1), quantile), 0.0)
        with np.errstate(invalid="ignore"):
            of_problems = stdtrit(self.problems - 1, quantile)
        return np.sqrt(of_seeds**2 * self.of_seeds + of_problems**2 * self.of_problems)

    def cautious(self) -> Spread:
        """With as much of seeds' luck as the rest would feign by chance where there is none.

        The luck of few seeds is often found to be nil. At 95 % that is made up for by the cases in
        which it is found too large; far out in the tails, where corrected tests look, it is not.
        """
        feigned = np.where(self.seeds > 1, BY_CHANCE * self.of_rest, 0.0)
        return replace(self, of_seeds=self.of_seeds + feigned)

    def p_value(self) -> np.ndarray:
        """Two-sided, of the mean against 0: the `cautious` interval at level 1 - p ends at 0."""
        usual, shape = self.cautious(), np.shape(self.mean)
        low, high = np.full(shape, SMALLEST_LOG_P), np.zeros(shape)
        for _ in range(50):  # the half-width is a falling function of log p
            middle = (low + high) / 2
            wider = usual.reach(1 - np.exp(middle) / 2) >= np.abs(self.mean)
            low, high = np.where(wider, middle, low), np.where(wider, high, middle)
        return np.where(np.isnan(self.half_width()), np.nan, np.exp(high))


def terms(values: np.ndarray, weights: np.ndarray) -> Terms:
    """Values and weights (…, seeds, problems) → `Terms`.

    `values` where the weight is zero are not looked at and may be NaN.
    """
    totals = weights.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        shares = weights / totals
    values = np.where(weights > 0, values, 0.0)
    means = (shares * values).sum(axis=-1)
    return Terms(means, shares * (values - means[..., None]), shares)


def spread(of: Terms) -> Spread:
    """The mean over the seeds that measured anything, and the parts of its variance."""
    measured = ~np.isnan(of.means)
    seeds = measured.sum(axis=-1).astype(float)
    means = np.where(measured, of.means, 0.0)
    parts = np.where(measured[..., None], of.parts, 0.0)
    shares = np.where(measured[..., None], of.shares, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = means.sum(axis=-1) / seeds
        by_problem = parts.sum(axis=-2) / seeds[..., None]
        problems = 1 / ((shares.sum(axis=-2) / seeds[..., None]) ** 2).sum(axis=-1)
        small = np.where(problems > 1 + 1e-9, problems / (problems - 1), np.nan)
        of_problems = small * (by_problem**2).sum(axis=-1)
        rest = np.where(measured[..., None], parts - by_problem[..., None, :], 0.0)
        pairs = np.where(seeds > 1, seeds * (seeds - 1), np.inf)
        of_rest = small * (rest**2).sum(axis=(-1, -2)) / pairs
        off = np.where(measured, means - mean[..., None], 0.0)
        of_seeds = np.maximum((off**2).sum(axis=-1) / pairs - of_rest, 0.0)
    return Spread(mean, of_seeds, of_problems, of_rest, seeds, problems)


def interval(
    values: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    bounds: tuple[float, float] = (-np.inf, np.inf),
    level: float = LEVEL,
) -> Interval:
    """Of the mean over seeds of the weighted mean over problems; (problems,) or (seeds, problems).

    With one seed it covers the choice of problems and the sampling noise, not training's own
    randomness. `bounds` are those of the quantity itself, beyond which no end lies.
    """
    values = np.atleast_2d(np.asarray(values, dtype=float))
    weights = np.ones_like(values) if weights is None else np.atleast_2d(weights).astype(float)
    if values.shape != weights.shape:
        raise ValueError(f"values {values.shape} and weights {weights.shape} differ in shape")
    found = spread(terms(values, weights))
    return ends(found, bounds, level)


def ends(
    found: Spread, bounds: tuple[float, float] = (-np.inf, np.inf), level: float = LEVEL
) -> Interval:
    """The interval of one `Spread` (of scalars)."""
    mean, half = float(found.mean), float(found.half_width(level))
    low, high = max(mean - half, bounds[0]), min(mean + half, bounds[1])
    return Interval(mean, *((low, high) if half == half else (float("nan"),) * 2))


# What rliable (Agarwal et al. 2021, 2108.13264) reports, with problems as its tasks. The estimates
# equal rliable 1.2.0's, which has no TIE; intervals are not theirs, since there each task has runs
# of its own, and here a run answers every problem.


TIE = 1e-12  # scores as near as that are equal, but summed or interpolated in another order


def probability_of_improvement(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Chance that a run of A does better than one of B on a problem, mean over problems.

    (…, seeds, problems) each → (…); ties count a half, NaN is left out. NaN where nothing is left.
    """
    more = pairs = np.zeros((*b.shape[:-2], b.shape[-1]))
    for seed in range(a.shape[-2]):
        ahead = a[..., seed : seed + 1, :] - b  # of a NaN no comparison holds
        more = more + (ahead > TIE).sum(axis=-2) + (np.abs(ahead) <= TIE).sum(axis=-2) / 2
        pairs = pairs + (~np.isnan(ahead)).sum(axis=-2)
    measured = pairs > 0
    shares = np.where(measured, more / np.maximum(pairs, 1), 0.0)
    with np.errstate(invalid="ignore"):
        return shares.sum(axis=-1) / measured.sum(axis=-1)


def interquartile_mean(values: np.ndarray) -> float:
    """Mean of the middle half of all values, seeds and problems together; NaN is left out."""
    ordered = np.sort(values[~np.isnan(values)], axis=None)
    cut = ordered.size // 4
    return float(ordered[cut : ordered.size - cut].mean()) if ordered.size else float("nan")


def performance_profile(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(thresholds,): share of all values, seeds and problems together, above each; NaN left out."""
    ordered = np.sort(values[~np.isnan(values)], axis=None)
    if not ordered.size:
        return np.full(len(thresholds), np.nan)
    return 1 - np.searchsorted(ordered, thresholds, side="right") / ordered.size
