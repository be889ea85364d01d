"""Saturating curves of scores over a budget, fitted to a group's evaluations.

    R(C) = R0 + (A - R0) / (1 + (C_mid / C)^B)

Khatri et al., "The Art of Scaling Reinforcement Learning Compute for LLMs" (ScaleRL), arXiv
2510.13786, eq. 1. R0 is the score at C = 0, A the score that training approaches, C_mid the budget
of half the gain, and B how suddenly the gain comes. R0 is not fitted: it is the base's measured
score. Given C_mid and B the curve is linear in A, so the least squares over A have a closed form,
and only C_mid and B need a grid. Binomial weights 1 / R(1 - R) are those of the fit before.

Evaluations of one group share their problems and seeds, so the errors of its points are correlated.
Intervals come from a bootstrap that draws seeds and problems and fits every replicate anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.stats.intervals import LEVEL

REPLICATES = 500
MIDPOINTS, EXPONENTS = 40, 24  # of the grid, evenly spaced in logarithms
FINER = 4  # points of the finer grid up to the next of the coarse one
EARLIEST, LATEST = 1 / 4, 8.0  # C_mid from 1/4 of the first budget to 8 times the last
SLOWEST, STEEPEST = 0.25, 8.0  # B
PASSES = 3  # fits, each with the weights of the one before
EDGE = 1e-9


@dataclass(frozen=True)
class Saturation:
    """Parameters of a curve, scalars; or of several, (replicates,) each."""

    base: np.ndarray  # R0
    asymptote: np.ndarray  # A
    midpoint: np.ndarray  # C_mid
    exponent: np.ndarray  # B

    def at(self, budget: np.ndarray) -> np.ndarray:
        """Return R at budgets (n,) above 0 → (…, n)."""
        parts = (self.base, self.asymptote, self.midpoint, self.exponent)
        base, asymptote, midpoint, exponent = (np.asarray(part)[..., None] for part in parts)
        return base + (asymptote - base) * gain(budget, midpoint, exponent)

    def item(self) -> Saturation:
        """Return the only curve of arrays (1,) as scalars."""
        return Saturation(*(np.asarray(part[0]) for part in vars(self).values()))


def gain(budget: np.ndarray, midpoint: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """Return the share of A - R0 that is reached at a budget, in (0, 1)."""
    return 1 / (1 + np.exp(exponent * (np.log(midpoint) - np.log(budget))))


def grid(budget: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of C_mid and of B, ascending, for budgets (evaluations,)."""
    midpoints = np.geomspace(EARLIEST * budget[0], LATEST * budget[-1], MIDPOINTS)
    return midpoints, np.geomspace(SLOWEST, STEEPEST, EXPONENTS)


def fit(
    budget: np.ndarray, base: np.ndarray, scores: np.ndarray, weights: np.ndarray
) -> Saturation:
    """Return the least-squares curves of replicates, with A between R0 and 1.

    budget (evaluations,) above 0 and ascending, base (replicates,), scores (replicates,
    evaluations), weights (evaluations,). The best point of the grid is refined once, on a finer
    grid between its neighbours.
    """
    midpoints, exponents = grid(budget)
    midpoint, exponent = np.repeat(midpoints, EXPONENTS)[None], np.tile(exponents, MIDPOINTS)[None]
    fine = np.linspace(-1, 1, 2 * FINER + 1)
    ratios = midpoints[1] / midpoints[0], exponents[1] / exponents[0]
    steps = [
        ratio ** offsets.ravel()
        for ratio, offsets in zip(ratios, np.meshgrid(fine, fine), strict=True)
    ]
    for refined in (False, True):
        if refined:
            midpoint = np.clip(midpoint * steps[0], midpoints[0], midpoints[-1])
            exponent = np.clip(exponent * steps[1], exponents[0], exponents[-1])
        shares = gain(budget, midpoint[..., None], exponent[..., None])
        best, gains = _best(shares, scores - base[:, None], 1 - base, weights)
        midpoint, exponent = (
            np.take_along_axis(np.broadcast_to(values, gains.shape), best, axis=1)
            for values in (midpoint, exponent)
        )
    asymptote = base + np.take_along_axis(gains, best, axis=1)[:, 0]
    return Saturation(base, asymptote, midpoint[:, 0], exponent[:, 0])


def _best(
    shares: np.ndarray, excess: np.ndarray, most: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the point of least loss (replicates, 1), and A - R0 at every point.

    shares (replicates or 1, points, evaluations), excess over the base (replicates, evaluations),
    most (replicates,): the greatest A - R0. A - R0 is (replicates, points).
    """
    squares = shares**2 @ weights
    products = (shares @ (excess * weights)[..., None])[..., 0]
    gains = np.clip(products / squares, 0.0, most[:, None])
    loss = gains * (gains * squares - 2 * products)
    return loss.argmin(axis=1)[:, None], gains


def fit_weighted(
    budget: np.ndarray, base: float, scores: np.ndarray, least: float
) -> tuple[Saturation, np.ndarray]:
    """Return the curve of scores (evaluations,) and its binomial weights, iterated from equal ones.

    `least`: the least probability that a weight takes for possible, and 1 minus the greatest.
    """
    weights = np.ones_like(scores)
    for _ in range(PASSES):
        curve = fit(budget, np.array([base]), scores[None], weights).item()
        expected = np.clip(curve.at(budget), least, 1 - least)
        weights = 1 / (expected * (1 - expected))
    return curve, weights


def at_an_end(curve: Saturation, budget: np.ndarray) -> np.ndarray:
    """Return where A is not identified, (replicates,).

    The best fit then lies at an end beyond which A would grow further: A = 1, the latest C_mid or
    the slowest B.
    """
    midpoints, exponents = grid(budget)
    return (
        (curve.asymptote >= 1 - EDGE)
        | (curve.midpoint >= midpoints[-1] * (1 - EDGE))
        | (curve.exponent <= exponents[0] * (1 + EDGE))
    )


# The bootstrap over seeds and problems.


def resampled_means(values: np.ndarray, replicates: int = REPLICATES) -> np.ndarray:
    """Return bootstrap replicates of the means over seeds and problems, (replicates, evaluations).

    values (seeds, evaluations, problems). Each replicate draws the seeds, and the problems, with
    replacement. The mean is moved by what the drawn problems, and the drawn seeds, deviate from it.
    With equally many seeds and problems, all groups have the same draws, so differences of
    replicates are paired.
    """
    seeds, _, problems = values.shape
    random = np.random.default_rng(0)
    by_seed, by_problem = values.mean(axis=2), values.mean(axis=0).T
    mean = by_seed.mean(axis=0)
    moved = _deviations(random, problems, replicates) @ (by_problem - mean)
    of_seeds = _deviations(random, seeds, replicates) @ (by_seed - mean)
    return mean + moved + _seed_stretch(values) * of_seeds


def _deviations(random: np.random.Generator, count: int, replicates: int) -> np.ndarray:
    """Return the weights of `count` units in each replicate, less 1 / count: their sum is 0.

    Stretched by √(n / (n - 1)), so that few units spread as their mean does.
    """
    drawn = random.multinomial(count, np.full(count, 1 / count), size=replicates)
    stretch = np.sqrt(count / (count - 1)) if count > 1 else 0.0
    return stretch * (drawn - 1) / count


def _seed_stretch(values: np.ndarray) -> float:
    """Return what few seeds' deviations are multiplied by, as in `analysis.stats.intervals`.

    Noise that is drawn anew for each seed and problem shows in the problems' deviations already, so
    only the spread over seeds beyond it counts (pooled over evaluations). It has the t quantile of
    S - 1 degrees of freedom in place of the normal one.
    """
    from scipy.special import ndtri, stdtrit

    seeds, evaluations, problems = values.shape
    if seeds < 2 or problems < 2:
        return 1.0
    by_seed = values.mean(axis=2, keepdims=True)
    residuals = values - by_seed - (values - by_seed).mean(axis=0)
    noise = (residuals**2).sum() / ((seeds - 1) * (problems - 1) * evaluations * problems)
    spread = by_seed.var(axis=0, ddof=1).mean()
    if spread <= noise:
        return 0.0
    quantile = (1 + LEVEL) / 2
    return float(np.sqrt(1 - noise / spread) * stdtrit(seeds - 1, quantile) / ndtri(quantile))
