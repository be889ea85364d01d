"""A study's figure: each arm's means and 95 % intervals, a panel for each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.metrics import TITLES
from experiments.look import BASE_COLOUR, COLOUR, LOOK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, ROW = 9.0, 0.27  # inches


def forest(rows: Sequence[tuple[str, Mapping[str, float]]], metrics: Sequence[str]) -> Figure:
    """(name, its row of table.csv) from top to bottom; what a row lacks is left blank.

    A dotted line goes through each base's mean.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(LOOK):
        size = (WIDTH, 0.7 + ROW * len(rows))
        figure, panels = plt.subplots(
            1, len(metrics), figsize=size, layout="constrained", sharey=True, squeeze=False
        )
        for axes, metric in zip(panels.flat, metrics, strict=True):
            for place, (name, row) in enumerate(rows):
                mean, low, high = (row.get(metric + end, float("nan")) for end in _ENDS)
                colour = BASE_COLOUR if is_base(name) else COLOUR
                axes.plot([low, high], [place, place], color=colour, linewidth=2)
                axes.plot([mean], [place], "x" if is_base(name) else "o", color=colour)
                if is_base(name):
                    axes.axvline(mean, color=colour, linestyle=":", linewidth=1)
            axes.set_title(TITLES.get(metric, metric))
            axes.set_xlim(0, 1)
            axes.grid(axis="y", visible=False)
            axes.tick_params(axis="y", length=0)
        panels.flat[0].set_yticks(range(len(rows)), [name for name, _ in rows])
        panels.flat[0].set_ylim(len(rows) - 0.4, -0.6)
    return figure


def is_base(name: str) -> bool:
    return name == "base" or name.startswith("base ")


_ENDS = ("", "_low", "_high")


def save(figure: Figure, file: Path) -> None:
    """As SVG, the same bytes for the same figures, its words as text."""
    import matplotlib.pyplot as plt

    with plt.rc_context(LOOK | {"svg.fonttype": "none"}):
        figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
