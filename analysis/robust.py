"""What rliable (Agarwal et al. 2021, 2108.13264) reports, with problems as its tasks.

The estimates equal rliable 1.2.0's, which has no TIE; intervals are not theirs, since there each
task has runs of its own, and here a run answers every problem.
"""

from __future__ import annotations

import numpy as np

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
