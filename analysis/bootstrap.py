"""Bootstrap intervals for weighted means over problems, and over seeds where there are several.

Problems and seeds are resampled together and crossed: a seed is one trained model, which answers
every problem, so its good or bad luck is shared by all of them. (rliable, 2108.13264, draws runs
anew for each task, because there every task has runs of its own; here that would hide most of the
variance between seeds.) The crossed form is Owen's pigeonhole bootstrap (0712.1111), of which it
is known that it errs on the wide side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the ends of its interval; all NaN where nothing could be measured."""

    mean: float
    low: float
    high: float


def estimate(values: np.ndarray, weights: np.ndarray) -> float:
    """The mean over seeds of the weighted mean over problems; both arrays (seeds, problems).

    A seed whose weights are all zero has no say; NaN where no seed has one.
    """
    per_seed = _weighted_mean(values, weights, np.ones((1, values.shape[1])))[0]
    measured = per_seed[~np.isnan(per_seed)]
    return float(measured.mean()) if measured.size else float("nan")


def bootstrap_interval(
    values: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Percentile interval of `estimate` for values of shape (problems,) or (seeds, problems).

    Each resample draws the problems with replacement and, of S > 1 seeds, S - 1 with replacement:
    drawing all S would understate the variance of the mean by (S - 1)/S, a half for two seeds (Rao
    and Wu 1988). With one seed the interval covers the choice of problems and the sampling noise,
    not training's own randomness.

    `values` where the weight is zero are not looked at and may be NaN. Deterministic in `seed`.
    """
    values = np.atleast_2d(np.asarray(values, dtype=float))
    weights = np.ones_like(values) if weights is None else np.atleast_2d(weights).astype(float)
    if values.shape != weights.shape:
        raise ValueError(f"values {values.shape} and weights {weights.shape} differ in shape")
    seeds, problems = values.shape
    if not (weights > 0).any():
        return Interval(float("nan"), float("nan"), float("nan"))
    means = _weighted_mean(values, weights, _draws(problems, resamples, seed))
    if seeds > 1:
        random = np.random.default_rng([seed, 1])
        picked = random.integers(seeds, size=(resamples, seeds - 1))
        means = np.take_along_axis(means, picked, axis=1)
    measured = ~np.isnan(means)
    counted = measured.sum(axis=1)
    means = np.where(measured, means, 0.0).sum(axis=1)[counted > 0] / counted[counted > 0]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate(values, weights), float(low), float(high))


@lru_cache(maxsize=8)
def _draws(problems: int, resamples: int, seed: int) -> np.ndarray:
    """(resamples, problems): how often each problem is drawn; the same for all metrics."""
    random = np.random.default_rng([seed, 0])
    equal = np.full(problems, 1 / problems)
    return random.multinomial(problems, equal, size=resamples).astype(float)


def _weighted_mean(values: np.ndarray, weights: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """(draws, seeds): the weighted mean of each seed's problems, each taken `draws` times."""
    products = np.where(weights > 0, values, 0.0) * weights
    totals = draws @ weights.T
    return np.divide(
        draws @ products.T, totals, out=np.full(totals.shape, np.nan), where=totals > 0
    )
