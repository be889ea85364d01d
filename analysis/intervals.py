"""Intervals for means over seeds and problems, and for paired differences of two such means.

A seed is one trained model that answers every problem. Its training randomness is shared by all
problems, and a problem's difficulty is shared by all seeds. The design is crossed, with both drawn
at random. The mean's variance has two parts, estimated by the mean squares of a two-way layout
(Searle, Casella and McCulloch 1992, ch. 4):

- That of the problems, including what is drawn anew for each pair of seed and problem (the
  samples). It shows in the spread over problems of the mean over seeds.
- That of the seeds: the spread over seeds beyond its share of the former.

The half-width of an interval is √(t²_{S-1} · seeds + t²_{n-1} · problems). Each part has the
quantile of its own degrees of freedom, as in Howe (1974, J. Am. Stat. Assoc. 69) for a sum of two
estimates. A percentile bootstrap over 3 seeds and a t-interval with Satterthwaite's degrees of
freedom are too narrow, the more so the more seeds differ. tests/analysis/test_intervals.py
checks the coverage. Ratios (a mean weighted by accepted programs, or over the problems on which it
is defined) enter by their first-order terms. Problems count by Kish's effective number.

**Moderation.** With S seeds an arm's own variance has S - 1 degrees of freedom: at three seeds no
test that uses it alone survives a correction for many pairs. The arms of one experiment share the
causes of their spread, so in differences each arm's variance is shrunk towards what all have in
common (empirical Bayes, as limma does for genes: Smyth 2004, Stat. Appl. Genet. Mol. Biol. 3). Two
guards keep the family-wise error: an arm whose variance is far above the common one keeps its own,
and the common variance, itself estimated from these arms, counts for at most MOST_FREEDOM degrees
of freedom per other arm.

**Power.** Where a design's noise comes from, and which differences it can detect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, digamma, fdtrc, gammaln, polygamma, stdtrit, xlogy

from analysis.metrics import ScoreGrid, metric_bounds
from analysis.pass_at_k import pass_at_k

Numbers = float | np.ndarray  # a scalar, or an array with one entry per pair

LEVEL = 0.95
SMALLEST_LOG_P = -30.0


class Interval(NamedTuple):
    """An estimate and the ends of its interval; all NaN where nothing was measured."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class SeedMeans:
    """A weighted mean over problems for each seed, and each problem's deviation from it.

    `means` (…, seeds) are NaN for a seed without a measurement. `deviations` (…, seeds, problems)
    are weighted and sum to 0 over problems. `shares` (…, seeds, problems) are the weights as shares
    of each seed's total.
    """

    means: np.ndarray
    deviations: np.ndarray
    shares: np.ndarray

    def __sub__(self, other: SeedMeans) -> SeedMeans:
        shares = (self.shares + other.shares) / 2
        return SeedMeans(self.means - other.means, self.deviations - other.deviations, shares)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and the components of its variance; scalars, or arrays of one shape (…).

    `residual_variance` is the part of `problem_variance` that is drawn anew for each seed. With one
    seed, `seed_variance` and `residual_variance` are unknown and set to 0. `seed_freedom` are the
    degrees of freedom of `seed_variance`. `problems` is Kish's effective number.
    """

    mean: Numbers
    seed_variance: Numbers
    problem_variance: Numbers
    residual_variance: Numbers
    seeds: Numbers
    problems: Numbers
    seed_freedom: Numbers

    @classmethod
    def stack(cls, estimates: Sequence[Estimate]) -> Estimate:
        """Combine scalar estimates into one of arrays (estimates,)."""
        return cls(
            **{f.name: np.array([getattr(e, f.name) for e in estimates]) for f in fields(cls)}
        )

    def item(self, index: int) -> Estimate:
        """Return one scalar estimate from arrays."""
        return Estimate(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def half_width(self, level: float = LEVEL) -> np.ndarray:
        """Return the half-width of the interval around `mean`; NaN with one problem."""
        return self.quantile_distance((1 + level) / 2)

    def quantile_distance(self, quantile: Numbers) -> np.ndarray:
        """Return the distance from `mean` up to the quantile, by Howe's formula."""
        freedom = np.maximum(self.seed_freedom, 1)
        t_seeds = np.where(self.seeds > 1, stdtrit(freedom, quantile), 0.0)
        with np.errstate(invalid="ignore"):
            t_problems = stdtrit(self.problems - 1, quantile)
        return np.sqrt(t_seeds**2 * self.seed_variance + t_problems**2 * self.problem_variance)

    def tested(self) -> Estimate:
        """Return the estimate as tests use it: what is drawn anew for each seed counts as seeds'.

        The variance of few seeds beyond the residual is often estimated as 0. In single intervals,
        cases in which it is overestimated make up for that. Far out in the tails, where corrected
        tests look, they do not. So the whole spread over seeds gets the quantile of its own degrees
        of freedom.
        """
        moved = np.where(self.seeds > 1, self.residual_variance, 0.0)
        return replace(
            self,
            seed_variance=self.seed_variance + moved,
            problem_variance=np.maximum(self.problem_variance - moved, 0.0),
        )

    def p_value(self) -> np.ndarray:
        """Return the two-sided p-value of the mean against 0.

        The interval of `tested` at level 1 - p ends at 0.
        """
        tested, shape = self.tested(), np.shape(self.mean)
        low, high = np.full(shape, SMALLEST_LOG_P), np.zeros(shape)
        for _ in range(50):  # the half-width is a falling function of log p
            middle = (low + high) / 2
            distance = tested.quantile_distance(1 - np.exp(middle) / 2)
            wider = distance >= np.abs(self.mean)
            low, high = np.where(wider, middle, low), np.where(wider, high, middle)
        return np.where(np.isnan(self.half_width()), np.nan, np.exp(high))


def seed_means(values: np.ndarray, weights: np.ndarray) -> SeedMeans:
    """Return the `SeedMeans` of values and weights (…, seeds, problems).

    Values with weight zero are ignored and may be NaN.
    """
    totals = weights.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        shares = weights / totals
    values = np.where(weights > 0, values, 0.0)
    means = (shares * values).sum(axis=-1)
    return SeedMeans(means, shares * (values - means[..., None]), shares)


def estimate(seed_means: SeedMeans) -> Estimate:
    """Return the mean over the seeds with a measurement, and its variance components."""
    measured = ~np.isnan(seed_means.means)
    seeds = measured.sum(axis=-1).astype(float)
    means = np.where(measured, seed_means.means, 0.0)
    deviations = np.where(measured[..., None], seed_means.deviations, 0.0)
    shares = np.where(measured[..., None], seed_means.shares, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = means.sum(axis=-1) / seeds
        by_problem = deviations.sum(axis=-2) / seeds[..., None]
        problems = 1 / ((shares.sum(axis=-2) / seeds[..., None]) ** 2).sum(axis=-1)
        correction = np.where(problems > 1 + 1e-9, problems / (problems - 1), np.nan)
        residuals = np.where(measured[..., None], deviations - by_problem[..., None, :], 0.0)
        seed_pairs = np.where(seeds > 1, seeds * (seeds - 1), np.inf)
        residual_variance = correction * (residuals**2).sum(axis=(-1, -2)) / seed_pairs
        of_seeds = np.where(measured, means - mean[..., None], 0.0)
        between_seeds = (of_seeds**2).sum(axis=-1) / seed_pairs
    return Estimate(
        mean=mean,
        seed_variance=np.maximum(between_seeds - residual_variance, 0.0),
        problem_variance=correction * (by_problem**2).sum(axis=-1),
        residual_variance=residual_variance,
        seeds=seeds,
        problems=problems,
        seed_freedom=np.maximum(seeds - 1, 0.0),
    )


def interval(
    values: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> Interval:
    """Return the interval of the mean over seeds of the weighted mean over problems.

    Arrays are (problems,) or (seeds, problems). With one seed the interval covers the choice of
    problems and the sampling noise, not training's own randomness. `bounds` are those of the
    quantity itself; no end of the interval exceeds them. Raises ValueError if the shapes differ.
    """
    values = np.atleast_2d(np.asarray(values, dtype=float))
    weights = np.ones_like(values) if weights is None else np.atleast_2d(weights).astype(float)
    if values.shape != weights.shape:
        raise ValueError(f"values {values.shape} and weights {weights.shape} differ in shape")
    scalar = estimate(seed_means(values, weights))
    mean, half = float(scalar.mean), float(scalar.half_width())
    if np.isnan(half):
        return Interval(mean, float("nan"), float("nan"))
    return Interval(mean, max(mean - half, bounds[0]), min(mean + half, bounds[1]))


TIE = 1e-12  # smaller differences come from the order of summation or interpolation


def probability_of_improvement(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the probability that a run of A beats one of B on a problem, mean over problems.

    That of rliable (Agarwal et al. 2021, 2108.13264), with problems as its tasks.
    (…, seeds, problems) each → (…). Ties count one half and NaN is ignored; NaN if nothing is left.
    """
    wins = pairs = np.zeros((*b.shape[:-2], b.shape[-1]))
    for seed in range(a.shape[-2]):
        difference = a[..., seed : seed + 1, :] - b  # comparisons with NaN are false
        ties = (np.abs(difference) <= TIE).sum(axis=-2)
        wins = wins + (difference > TIE).sum(axis=-2) + ties / 2
        pairs = pairs + (~np.isnan(difference)).sum(axis=-2)
    measured = pairs > 0
    shares = np.where(measured, wins / np.maximum(pairs, 1), 0.0)
    with np.errstate(invalid="ignore"):
        return shares.sum(axis=-1) / measured.sum(axis=-1)


OUTLIER_P = 0.1  # an arm's variance that chance would exceed less often is its own matter
MOST_FREEDOM = 0.15
FLOOR_P = 0.01  # a variance that is smaller than so many by chance says no more than this


def moderate(variances: np.ndarray, freedom: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the arms' moderated variances and their degrees of freedom.

    `variances` over seeds and `freedom` = seeds - 1 are (arms,). An arm with one seed, or without a
    measurement, has NaN and 0; it stays so and informs no other. With a single arm, or if no arm
    has any spread, nothing changes.
    """
    known = (freedom > 0) & ~np.isnan(variances)
    own, d = variances[known], freedom[known]
    if len(own) < 2 or not (own > 0).any():
        return variances, freedom
    common, common_freedom = _common(own, d)
    shrunk = (common_freedom * common + d * own) / (common_freedom + d)
    total = np.minimum(common_freedom + d, d.sum())
    outlier = fdtrc(d, common_freedom, own / common) < OUTLIER_P
    moderated, moderated_freedom = variances.astype(float), freedom.astype(float)
    moderated[known] = np.where(outlier, own, shrunk)
    moderated_freedom[known] = np.where(outlier, d, total)
    return moderated, moderated_freedom


def _common(own: np.ndarray, d: np.ndarray) -> tuple[float, float]:
    """Return the variance that the arms have in common, and its worth in degrees of freedom.

    The moments of log variances: Smyth 2004, section 6.2.
    """
    # Seeds may agree by chance to the last sample: log 0 would say that the arms differ greatly.
    floor = np.median(own[own > 0]) * chdtri(d, 1 - FLOOR_P) / d
    logs = np.log(np.maximum(own, floor))
    logs = logs - digamma(d / 2) + np.log(d / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, d / 2).mean())
    most = MOST_FREEDOM * (len(own) - 1)
    if excess <= 0:  # the arms differ no more than by chance
        return float(own.mean()), most
    # The worth d has trigamma(d/2) = excess. As 1/y < trigamma(y) < 1/y + 1/y², d/2 lies between:
    least, most_y = 1 / excess, (1 + np.sqrt(1 + 4 * excess)) / (2 * excess)
    worth = 2 * float(brentq(lambda y: polygamma(1, y) - excess, least, most_y))
    common = np.exp(logs.mean() + digamma(worth / 2) - np.log(worth / 2))
    return float(common), min(worth, most)


def seed_spread(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance over seeds, and its degrees of freedom, of means (arms, seeds).

    A seed without a measurement is NaN. An arm with fewer than two has NaN and 0.
    """
    seeds = (~np.isnan(means)).sum(axis=1)
    freedom = np.maximum(seeds - 1.0, 0.0)
    centred = means - np.nansum(means, axis=1, keepdims=True) / np.maximum(seeds, 1)[:, None]
    squares = np.nansum(centred**2, axis=1)
    return np.where(freedom > 0, squares / np.maximum(freedom, 1), np.nan), freedom


Spread = tuple[Numbers, Numbers]  # variance over seeds, and its degrees of freedom


def moderated_difference(raw: Estimate, *spreads: Spread) -> Estimate:
    """Return the estimate of a difference of arms with the moderated spread of each arm.

    The freedom is Satterthwaite's. That equal seeds share the order of their problems is not used:
    if it correlates the arms, the variance is too large. Without all spreads, or a second common
    seed, the estimate stays as it is.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = [variance / raw.seeds for variance, _ in spreads]
        total = reduce(np.add, parts)
        squares = [part**2 / own for part, (_, own) in zip(parts, spreads, strict=True)]
        freedom = total**2 / reduce(np.add, squares)
    freedom = np.where(total > 0, freedom, reduce(np.minimum, [own for _, own in spreads]))
    known = ~np.isnan(total) & (raw.seeds > 1)
    beyond = np.maximum(total - raw.residual_variance, 0.0)
    return replace(
        raw,
        seed_variance=np.where(known, beyond, raw.seed_variance),
        seed_freedom=np.where(known, freedom, raw.seed_freedom),
    )


def grid_interval(grid: ScoreGrid | None, metric: str) -> Interval:
    """Return the mean and interval of a metric's scores; NaN if there are none."""
    if grid is None:
        return Interval(float("nan"), float("nan"), float("nan"))
    return interval(grid.values, grid.weights, bounds=metric_bounds(metric))


def interval_columns(grid: ScoreGrid | None, metric: str, name: str = "") -> dict[str, float]:
    """Return `grid_interval` as the columns name, name_low and name_high; by default the metric."""
    ends = ("", "_low", "_high")
    values = grid_interval(grid, metric)
    return {f"{name or metric}{end}": value for end, value in zip(ends, values, strict=True)}


# Power.

POWER = 0.8
TARGET_DIFFERENCE = 0.05  # for which the report says what would be needed
RESOURCES = ("seeds", "samples", "problems")  # of which a design can have more
MOST = 1000  # designs with more than this multiple of a resource are not considered


@dataclass(frozen=True, slots=True)
class NoiseParts:
    """The variance of a mean or difference by source; NaN where unknown.

    `interaction` is how seeds differ by problem, beyond sampling. With one seed, `seeds` and
    `interaction` are unknown, and the latter is included in `problems`.
    """

    seeds: Numbers
    problems: Numbers
    interaction: Numbers
    sampling: Numbers

    def shares(self) -> dict[str, np.ndarray]:
        """Return each part's share of the known total."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        total = np.nansum(list(parts.values()), axis=0)
        with np.errstate(invalid="ignore"):
            return {name: np.where(total > 0, part / total, np.nan) for name, part in parts.items()}


def noise_parts(pair: Estimate, sampling: Numbers) -> NoiseParts:
    """Split the variance of estimates; `sampling` is the variance from samples, or NaN."""
    several, all_problems, residual = pair.seeds > 1, pair.problem_variance, pair.residual_variance
    drawn = np.where(np.isnan(sampling), 0.0, np.minimum(sampling, all_problems))
    own = np.maximum(all_problems - np.maximum(residual, drawn), 0.0)
    return NoiseParts(
        seeds=np.where(several, pair.seed_variance, np.nan),
        problems=np.where(several, own, all_problems - drawn),
        interaction=np.where(several, np.maximum(residual - drawn, 0.0), np.nan),
        sampling=sampling,
    )


def sampling_variance(accepted: np.ndarray, samples: np.ndarray, k: int) -> np.ndarray:
    """Return the sampling variance of pass@k of problems, for arrays of one shape.

    The variance of pass@k when acceptances are redrawn with the observed rate, times n/(n - 1). For
    k = 1 it is unbiased. NaN where pass@k cannot be estimated.
    """
    variances = np.full(np.shape(accepted), np.nan)
    for n in {int(n) for n in np.unique(samples) if n >= max(k, 2)}:
        scores = np.array([pass_at_k(n, c, k) for c in range(n + 1)])
        c = np.arange(n + 1)
        log_binomial = gammaln(n + 1) - gammaln(c + 1) - gammaln(n - c + 1)
        rate = c[:, None] / n  # a row each, with the probabilities of 0 … n of n
        redrawn = np.exp(log_binomial + xlogy(c, rate) + xlogy(n - c, 1 - rate))
        variance = (redrawn @ scores**2 - (redrawn @ scores) ** 2).clip(0) * n / (n - 1)
        of_size = samples == n
        variances[of_size] = variance[accepted[of_size].astype(int)]
    return variances


def smallest_difference(pair: Estimate) -> np.ndarray:
    """Return the true difference whose interval excludes 0 with probability POWER."""
    tested = pair.tested()
    return tested.quantile_distance((1 + LEVEL) / 2) + tested.quantile_distance(POWER)


def smallest_margin(pair: Estimate, tests: int = 1) -> np.ndarray:
    """Return the margin with which a comparison is decided with probability POWER.

    Decided means: called equal if nothing differs, and separated if the true difference is the
    margin. Tests are at the level of the first step of Holm's correction for `tests` pairs.
    """
    tested, level = pair.tested(), (1 - LEVEL) / tests
    separated = tested.quantile_distance(1 - level / 2) + tested.quantile_distance(POWER)
    # Without a difference, the mean may lie on either side.
    equal = tested.quantile_distance(1 - level) + tested.quantile_distance((1 + POWER) / 2)
    return np.maximum(separated, equal)


def resources_to_decide(pair: Estimate, margin: float, tests: int) -> dict[str, np.ndarray]:
    """Return how many seeds, or problems, decide each pair of a family of `tests`, all else equal.

    `pair` is an array of estimates. See `smallest_margin`; the observed differences play no part.
    The number is infinite if no multiple up to MOST suffices.
    """
    noise = noise_parts(pair, np.full(np.shape(pair.mean), np.nan))
    return {
        what: _least_detecting(
            pair, noise, np.nan, margin, what, lambda changed: smallest_margin(changed, tests)
        )
        for what in ("seeds", "problems")
    }


def resources_needed(
    pair: Estimate, noise: NoiseParts, samples: Numbers, target: float
) -> dict[str, np.ndarray]:
    """Return how many seeds, samples per problem, or problems would detect a difference `target`.

    Arguments are arrays of one shape, or scalars. Each resource varies alone. The number is
    infinite if no multiple up to MOST suffices, and NaN if the sampling variance is unknown.
    """
    needed = {what: _least_detecting(pair, noise, samples, target, what) for what in RESOURCES}
    unknown = np.isnan(noise.sampling)
    return needed | {"samples": np.where(unknown, np.nan, needed["samples"])}


def _least_detecting(
    pair: Estimate,
    noise: NoiseParts,
    samples: Numbers,
    target: float,
    what: str,
    reach: Callable[[Estimate], np.ndarray] = smallest_difference,
) -> np.ndarray:
    """Return the least number of a resource that detects `target`, in tenths of the current number.

    Found by bisection, because more of any resource detects more. `reach`: what a design detects.
    """
    current = {"seeds": pair.seeds, "samples": samples, "problems": pair.problems}[what]
    fewest = 2 if what == "seeds" else 1

    def number(tenths: np.ndarray) -> np.ndarray:
        return np.maximum(np.ceil(tenths * current / 10), fewest)

    low = np.zeros(np.shape(current), int)
    high = np.full(np.shape(current), MOST * 10)
    for _ in range((MOST * 10).bit_length()):
        middle = (low + high + 1) // 2
        detected = reach(_changed(pair, noise, number(middle), what, current)) <= target
        low, high = np.where(detected, low, middle), np.where(detected, middle, high)
    least = number(high)
    detected = reach(_changed(pair, noise, least, what, current)) <= target
    return np.where(detected, least, np.inf)


def _changed(
    pair: Estimate, noise: NoiseParts, number: np.ndarray, what: str, current: Numbers
) -> Estimate:
    """Return the estimate that this number of a resource would give, all else unchanged."""
    factor = current / number
    sampling = np.nan_to_num(noise.sampling)
    residual = (noise.interaction + sampling * (factor if what == "samples" else 1)) * (
        1 if what == "samples" else factor
    )
    return Estimate(
        mean=np.zeros_like(number),
        seed_variance=noise.seeds * (factor if what == "seeds" else 1),
        problem_variance=noise.problems * (factor if what == "problems" else 1) + residual,
        residual_variance=residual,
        seeds=number if what == "seeds" else pair.seeds,
        problems=number if what == "problems" else pair.problems,
        # as much more with more seeds as that of one arm
        seed_freedom=pair.seed_freedom * (number - 1) / np.maximum(np.asarray(pair.seeds) - 1, 1)
        if what == "seeds"
        else pair.seed_freedom,
    )
