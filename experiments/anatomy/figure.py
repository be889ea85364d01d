"""The figure of the anatomy: a matrix of cosines, and a map of who is near whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.anatomy.similarity import classes, linkage, mean_cosines, scaled
from experiments.studies.figures import COLOUR, LOOK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from experiments.anatomy.measure import Anatomy

NEAR = 0.99  # cosine of objectives that share a point of the map
BELOW, ABOVE = "base, fresh", "half-trained, stale"  # the two triangles of the matrix


def draw(found: Anatomy, names: Sequence[str]) -> Figure:
    """Return the figure: a matrix of two situations, and a map of the mean over all."""
    import matplotlib.pyplot as plt
    from scipy.cluster.hierarchy import leaves_list

    mean = mean_cosines(found)
    order = leaves_list(linkage(mean, "average")) if len(names) > 1 else np.arange(len(names))
    side = max(4.0, 0.19 * len(names))
    with plt.rc_context(LOOK | {"axes.grid": False}):
        figure = plt.figure(figsize=(side, 1.9 * side), layout="constrained")
        matrix, plane = figure.subplots(2, 1, height_ratios=(1.25, 1))
        pair = [_ordered(found.cosines[key], order) for key in (BELOW, ABOVE)]
        shown = np.where(np.tri(len(names), dtype=bool), *pair)
        image = matrix.imshow(shown, cmap="RdBu", vmin=-1, vmax=1)
        figure.colorbar(image, ax=matrix, shrink=0.3, pad=0.01, label="cosine", location="top")
        labels = [names[i] for i in order.tolist()]
        matrix.set_yticks(range(len(names)), labels, fontsize=7)
        matrix.set_xticks(range(len(names)), labels, fontsize=7, rotation=90)
        matrix.set_title(f"below: {BELOW}; above: {ABOVE}")
        _draw_map(plane, mean, names)
    return figure


def _ordered(cosines: Tensor, order: np.ndarray) -> np.ndarray:
    return cosines.numpy()[np.ix_(order, order)]


def _draw_map(axes: Axes, mean: np.ndarray, names: Sequence[str]) -> None:
    """Draw a point for each group of mean cosine ≥ .99, with its names, of which none overlap."""
    places = scaled(mean)
    together = classes(mean, names, NEAR)
    alone = [[name] for name in names if not any(name in group for group in together)]
    points = [
        (*places[[names.index(name) for name in group]].mean(0).tolist(), group)
        for group in [*together, *alone]
    ]
    width, line = np.ptp(places[:, 0]) or 1.0, (np.ptp(places[:, 1]) or 1.0) / 60
    written: list[tuple[float, float]] = []
    for x, y, group in sorted(points, key=lambda point: point[1]):
        axes.plot([x], [y], "o", color=COLOUR, markersize=4 + 2 * math.sqrt(len(group)), alpha=0.6)
        height = y
        while any(abs(x - u) < width / 4 and abs(height - v) < line for u, v in written):
            height += line / 4
        written.append((x, height))
        more = f" +{len(group) - 3}" if len(group) > 3 else ""
        text = ", ".join(sorted(group, key=len)[:3]) + more
        arrow = {"arrowstyle": "-", "color": "#bbbbbb", "linewidth": 0.6}
        at = (x + width / 80, height)
        axes.annotate(text, (x, y), at, fontsize=7, va="center", arrowprops=arrow)
    axes.margins(0.2, 0.05)  # room for the names
    axes.set_title("mean over all situations")
    axes.set_aspect("equal", "datalim")
    axes.set_xticks([])
    axes.set_yticks([])
