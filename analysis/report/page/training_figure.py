"""Training curves as small panels: what every run recorded at each step, a line per group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.report.page.figures import (
    AXIS_CHOICES,
    RANGE,
    Figure,
    Styles,
    by_label,
    floats,
    line,
    line_panel,
)
from analysis.report.page.svg import SMALL, Panel, Series
from analysis.report.render import count
from analysis.stats.curves import WINDOWS, X_AXES
from analysis.stats.training_curves import TRAINING_METRICS, TrainingMetric, thinned

MOST_POINTS = 50  # of a line, in a panel of a third of the page's width
MOST_WITH_RANGE = 6  # groups; the edges of more ranges than that hide the lines
TAIL = 0.01  # share of all values, beyond each end of a panel's robust range
FAR = 2.0  # times that range, beyond which a value would flatten the panel
MARGIN = 0.1  # of that range, beyond its ends


def training_figure(curve: pd.DataFrame, styles: Styles, window: int) -> Figure | None:
    """Draw training.csv against each axis that was recorded; None if it has no row of a style."""
    curve = curve[curve["label"].isin(list(styles))] if len(curve) else curve
    metrics = [m for m in TRAINING_METRICS if m.name in curve and curve[m.name].notna().any()]
    choices = [
        (AXIS_CHOICES[x], [_panel(curve, x, metric, styles) for metric in metrics])
        for x in X_AXES
        if x in curve and curve[x].notna().any()
    ]
    if not metrics or not choices:
        return None
    smoothing = f"Each line is a mean over the last {window} steps. " if window > 1 else ""
    caption = (
        f"{smoothing}Lines are means over seeds. Thin lines: the range over seeds, not an "
        "interval. A panel has the groups that recorded its column; docs/reference/run-folder.md "
        "explains the columns of metrics.parquet. Losses of different algorithms have different "
        "scales. "
        "Where few values would flatten a panel, its axis ends near the 99th percentile of all "
        "groups' values (or begins near the first): triangles mark points beyond, and a line below "
        "counts them, with points whose range lies beyond."
    )
    labels = {label for label in styles if label in set(curve["label"])}
    return Figure("training", "Training curves", caption, labels, choices)


def _panel(curve: pd.DataFrame, x: str, metric: TrainingMetric, styles: Styles) -> Panel:
    """Draw one metric against axis `x`."""
    recorded = curve.dropna(subset=[x, metric.name])
    columns = (metric.name, f"{metric.name}_low", f"{metric.name}_high")
    with_range = recorded["label"].nunique() <= MOST_WITH_RANGE
    whole, series = [], []
    for label, part in by_label(recorded):
        one = replace(line(label, styles, floats(part[x]), part, columns), markers=False)
        one_seed = (part["seeds"] == 1).all()
        whole.append(one if with_range and not one_seed else replace(one, low=(), high=()))
        series.append(_thinned(whole[-1]))
    values = np.array([v for one in whole for ends in (one.y, one.low, one.high) for v in ends])
    low, high = robust_bounds(values, len(whole))
    bounds = max(metric.low, low), min(metric.high, high)
    panel = line_panel(metric.title, x, series, SMALL, bounds)
    return replace(panel, interval=RANGE, note=_beyond(whole, panel.y.low, panel.y.high))


def _thinned(series: Series) -> Series:
    """Return at most MOST_POINTS of a line's points."""
    kept = thinned(len(series.x), MOST_POINTS)
    x, y, low, high = (
        [values[i] for i in kept] if len(values) else ()
        for values in (series.x, series.y, series.low, series.high)
    )
    return replace(series, x=x, y=y, low=low, high=high)


def robust_bounds(values: np.ndarray, lines: int) -> tuple[float, float]:
    """Return the ends of an axis that few far values do not flatten; infinite where none are far.

    The robust range has 0 and the values between two quantiles. An end is bounded, at MARGIN beyond
    that range, if a value is more than FAR times the range away from its other end. A spike of one
    step fills a whole window of one line, so of few lines more than TAIL lies beyond a quantile.
    """
    values = values[np.isfinite(values)]
    if not len(values):
        return -math.inf, math.inf
    tail = max(TAIL, 1 / (WINDOWS * lines))
    least = min(float(np.quantile(values, tail, method="higher")), 0.0)
    greatest = max(float(np.quantile(values, 1 - tail, method="lower")), 0.0)
    width = greatest - least
    low, high = -math.inf, math.inf
    if width > 0 and values.max() > least + FAR * width:
        high = greatest + MARGIN * width
    if width > 0 and values.min() < greatest - FAR * width:
        low = least - MARGIN * width
    return low, high


def _beyond(series: Sequence[Series], low: float, high: float) -> str:
    """Count the points beyond the axis, or with a range beyond, and name the farthest; "" if none.

    The points are those of training.csv, of which a panel draws some.
    """
    tops = [point for one in series for point in _ends(one, one.high)]
    bottoms = [point for one in series for point in _ends(one, one.low)]
    ranges = "or their ranges " if any(len(one.high) for one in series) else ""
    of, parts = f"of {count(len(tops))} points {ranges}lie", []
    if above := [point for point in tops if point[0] > high]:
        value, label = max(above)
        parts.append(f"{count(len(above))} {of} above, up to {value:.3g} ({label})")
    if below := [point for point in bottoms if point[0] < low]:
        value, label = min(below)
        parts.append(f"{count(len(below))} {of} below, down to {value:.3g} ({label})")
    return "; ".join(parts)


def _ends(series: Series, ends: Sequence[float]) -> list[tuple[float, str]]:
    """Return (value, label) of the ends of a line's ranges, or of its points if it has no range."""
    return [(value, series.label) for value in ends or series.y if math.isfinite(value)]
