"""The numbers behind a section's figures, for the values that the page shows at its points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from analysis.report.page.figures import Figure
from analysis.report.page.svg import Panel, Series

DIGITS = 4  # significant ones


def panel_key(figure: str, choice: int, place: int) -> str:
    """Return the key of a panel: the `place`-th of the `choice`-th axis of a figure."""
    return f"{figure}-{choice}-{place}"


def figure_points(figures: Iterable[Figure]) -> dict[str, Any]:
    """Return panel key → its data: axes, plot, and the points of each series."""
    return {key: _panel_data(panel) for figure in figures for key, panel in _panels(figure)}


def _panels(figure: Figure) -> Iterator[tuple[str, Panel]]:
    for choice, (_, panels) in enumerate(figure.choices):
        for place, panel in enumerate(panels):
            yield panel_key(figure.name, choice, place), panel


def _panel_data(panel: Panel) -> dict[str, Any]:
    return {
        "x": [panel.x.title, panel.x.low, panel.x.high],
        "y": [panel.y.title, panel.y.low, panel.y.high],
        "plot": panel.size.plot,
        "interval": panel.interval,
        "series": [_series_data(series) for series in panel.series],
    }


def _series_data(series: Series) -> dict[str, Any]:
    """Return label, x, y and, where known, the ends of the intervals; points without y are left."""
    kept = [i for i, y in enumerate(series.y) if math.isfinite(y) and math.isfinite(series.x[i])]
    data: dict[str, Any] = {"label": series.label}
    for name in ("x", "y", "low", "high", "x_low", "x_high"):
        values: Sequence[float] = getattr(series, name)
        if len(values):
            data[name] = [_rounded(values[i]) for i in kept]
    return data


def _rounded(value: float) -> float | int | None:
    """Return a number with DIGITS digits, None for NaN; whole numbers, such as steps, have all."""
    if not math.isfinite(value):
        return None
    rounded = value if value == int(value) else float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded == int(rounded) else rounded
