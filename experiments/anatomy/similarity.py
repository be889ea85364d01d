"""Which objectives are alike: cosines over all situations, groups of them, and places on a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from experiments.anatomy.measure import Anatomy


def mean_cosines(found: Anatomy) -> np.ndarray:
    """Return the mean over situations in which both have a gradient; 0 where there is none."""
    stacked = np.stack([table.numpy() for table in found.cosines.values()])
    known = ~np.isnan(stacked)
    return np.where(known, stacked, 0.0).sum(0) / np.maximum(1, known.sum(0))


def least_cosines(found: Anatomy) -> np.ndarray:
    """Return the lowest cosine over situations, where there is one."""
    stacked = np.stack([table.numpy() for table in found.cosines.values()])
    lowest: np.ndarray = np.where(np.isnan(stacked), np.inf, stacked).min(0)
    return np.where(np.isinf(lowest), 0.0, lowest)


def linkage(cosines: np.ndarray, method: str) -> np.ndarray:
    """Return scipy's hierarchical clustering of the distances 1 − cosine."""
    from scipy.cluster.hierarchy import linkage as cluster
    from scipy.spatial.distance import squareform

    distances = np.clip(1 - np.nan_to_num(cosines), 0, 2)
    np.fill_diagonal(distances, 0)
    return cluster(squareform((distances + distances.T) / 2, checks=False), method)


def classes(cosines: np.ndarray, names: Sequence[str], least: float) -> list[list[str]]:
    """Return groups of names whose cosines are all at least `least`, the largest first."""
    from scipy.cluster.hierarchy import fcluster

    if len(names) < 2:
        return []
    labels = fcluster(linkage(cosines, "complete"), 1 - least, "distance")
    groups = [
        [n for n, label in zip(names, labels, strict=True) if label == k] for k in set(labels)
    ]
    return sorted((group for group in groups if len(group) > 1), key=lambda g: (-len(g), g))


def scaled(cosines: np.ndarray) -> np.ndarray:
    """Return places in the plane, (n, 2), by classical scaling: unit vectors of these cosines."""
    centred = cosines - cosines.mean(0) - cosines.mean(1)[:, None] + cosines.mean()
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    if len(values) < 2:
        return np.zeros((len(values), 2))
    top = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))
    signs = np.sign(top[np.abs(top).argmax(0), [0, 1]])  # eigenvectors have no sign of their own
    places: np.ndarray = (top * signs)[:, ::-1]
    return places
