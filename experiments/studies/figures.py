"""The style of all matplotlib figures, a study's figure, and number formats of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.metrics import TITLES

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


WIDTH, ROW = 9.0, 0.27  # inches


def forest(rows: Sequence[tuple[str, Mapping[str, float]]], metrics: Sequence[str]) -> Figure:
    """Means and 95 % intervals of (name, row of table.csv), from the top; a panel for each metric.

    Missing values stay blank. A dotted line marks the mean of each base model.
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
    """Write an SVG with text as text; equal data give equal bytes."""
    import matplotlib.pyplot as plt

    with plt.rc_context(LOOK | {"svg.fonttype": "none"}):
        figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def interval(row: Mapping[str, float], mean: str, low: str, high: str) -> str:
    """A mean and its interval, or –."""
    if mean not in row or row[mean] != row[mean]:
        return "–"
    return f"{row[mean]:.3f} [{row[low]:.3f}, {row[high]:.3f}]"


def signed(difference: tuple[float, float, float] | None, digits: int = 3) -> str:
    """A difference and its interval, if it has one: a single seed has none."""
    if difference is None or isnan(difference[0]):
        return "–"
    mean, low, high = (f"{value:+.{digits}f}" for value in difference)
    text = mean if isnan(difference[1]) else f"{mean} [{low}, {high}]"
    return text.replace("-", "−")


def count(value: float | None) -> str:
    return "–" if value is None or isnan(value) else f"{value:,.0f}"
