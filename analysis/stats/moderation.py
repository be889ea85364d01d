"""Spread over seeds, moderated: each arm's variance, shrunk towards what all arms have in common.

With S seeds an arm's own variance has S - 1 degrees of freedom. At three seeds no test that uses it
alone survives a correction for many pairs. The arms of one experiment share the causes of their
spread, so each arm's variance is taken with the others' (empirical Bayes, as limma does for genes:
Smyth 2004, Stat. Appl. Genet. Mol. Biol. 3). Two guards keep the family-wise error:

- An arm whose variance is far above the common one keeps its own.
- The common variance counts for at most MOST_FREEDOM degrees of freedom per other arm, since it is
  itself estimated from these arms.

`python -m tests.analysis.stats.family_wise` checks the error and the power of what follows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.stats.intervals import Estimate, Numbers

WILD = 0.1  # an arm's variance that chance would exceed less often is its own matter
MOST_FREEDOM = 0.15
LUCKY = 0.01  # a variance that is smaller than so many by chance says no more than this


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
    wild = _chance_above(own / common, d, common_freedom) < WILD
    moderated, moderated_freedom = variances.astype(float), freedom.astype(float)
    moderated[known] = np.where(wild, own, shrunk)
    moderated_freedom[known] = np.where(wild, d, total)
    return moderated, moderated_freedom


def _common(own: np.ndarray, d: np.ndarray) -> tuple[float, float]:
    """Return the variance that the arms have in common, and its worth in degrees of freedom.

    The moments of log variances: Smyth 2004, section 6.2.
    """
    from scipy.special import chdtri, digamma, polygamma

    # Seeds may agree by chance to the last sample: log 0 would say that the arms differ greatly.
    floor = np.median(own[own > 0]) * chdtri(d, 1 - LUCKY) / d
    logs = np.log(np.maximum(own, floor))
    logs = logs - digamma(d / 2) + np.log(d / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, d / 2).mean())
    most = MOST_FREEDOM * (len(own) - 1)
    if excess <= 0:  # the arms differ no more than by chance
        return float(own.mean()), most
    worth = 2 * _inverse_trigamma(excess)
    common = np.exp(logs.mean() + digamma(worth / 2) - np.log(worth / 2))
    return float(common), min(worth, most)


def _inverse_trigamma(value: float) -> float:
    """Return y with trigamma(y) = value > 0."""
    from scipy.optimize import brentq
    from scipy.special import polygamma

    # 1/y < trigamma(y) < 1/y + 1/y², so y lies between 1/value and the root of the right side.
    high = (1 + np.sqrt(1 + 4 * value)) / (2 * value)
    return float(brentq(lambda y: polygamma(1, y) - value, 1 / value, high))


def _chance_above(ratio: np.ndarray, d: np.ndarray, common_freedom: float) -> np.ndarray:
    from scipy.special import fdtrc

    return fdtrc(d, common_freedom, ratio)


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


def moderated_difference(raw: Estimate, one: Spread, other: Spread) -> Estimate:
    """Return the estimate of one - other with the moderated spread of both arms.

    The freedom is Satterthwaite's. That equal seeds share the order of their problems is not used:
    if it correlates the arms, the variance is too large. Without both spreads, or a second common
    seed, the estimate stays as it is.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = one[0] / raw.seeds, other[0] / raw.seeds
        freedom = (a + b) ** 2 / (a**2 / one[1] + b**2 / other[1])
    freedom = np.where(a + b > 0, freedom, np.minimum(one[1], other[1]))
    known = ~np.isnan(a + b) & (raw.seeds > 1)
    beyond = np.maximum(a + b - raw.residual_variance, 0.0)
    return replace(
        raw,
        seed_variance=np.where(known, beyond, raw.seed_variance),
        seed_freedom=np.where(known, freedom, raw.seed_freedom),
    )
