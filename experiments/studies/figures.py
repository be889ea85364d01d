"""How figures look that are drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.metrics.definitions import TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOUR, BASE_COLOUR = "#0072B2", "#444444"
LOOK: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "figure.dpi": 150,
    "svg.hashsalt": "spo-bench",  # the same data give the same bytes
}


# A study's figure: each arm's means and 95 % intervals, a panel for each metric.


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


# Cells of the tables of a study's page.


def interval(row: Mapping[str, float], mean: str, low: str, high: str) -> str:
    """A mean and its interval; – where there is none."""
    if mean not in row or row[mean] != row[mean]:
        return "–"
    return f"{row[mean]:.3f} [{row[low]:.3f}, {row[high]:.3f}]"


def signed(found: tuple[float, float, float] | None, digits: int = 3) -> str:
    """A difference and its interval, where there is one: a single seed has none."""
    if found is None or found[0] != found[0]:
        return "–"
    if found[1] != found[1]:
        return f"{found[0]:+.{digits}f}".replace("-", "−")
    text = f"{found[0]:+.{digits}f} [{found[1]:+.{digits}f}, {found[2]:+.{digits}f}]"
    return text.replace("-", "−")


def count(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:,.0f}"
