"""Training curves as small panels: what every run recorded at each step, a line per group."""

from __future__ import annotations

from dataclasses import replace

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
from analysis.report.page.svg import SMALL, Panel
from analysis.stats.curves import X_AXES
from analysis.stats.training_curves import TRAINING_METRICS, TrainingMetric, thinned

MOST_POINTS = 50  # of a line, in a panel of a third of the page's width
MOST_WITH_RANGE = 6  # groups; the edges of more ranges than that hide the lines


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
        "scales."
    )
    if "value/explained_variance" in {metric.name for metric in metrics}:
        caption += " Explained variance below −1 is drawn at −1."
    labels = {label for label in styles if label in set(curve["label"])}
    return Figure("training", "Training curves", caption, labels, choices)


def _panel(curve: pd.DataFrame, x: str, metric: TrainingMetric, styles: Styles) -> Panel:
    """Draw one metric against axis `x`."""
    recorded = curve.dropna(subset=[x, metric.name])
    columns = (metric.name, f"{metric.name}_low", f"{metric.name}_high")
    with_range = recorded["label"].nunique() <= MOST_WITH_RANGE
    series = []
    for label, whole in by_label(recorded):
        part = whole.iloc[thinned(len(whole), MOST_POINTS)]
        one = replace(line(label, styles, floats(part[x]), part, columns), markers=False)
        one_seed = (part["seeds"] == 1).all()
        series.append(one if with_range and not one_seed else replace(one, low=(), high=()))
    panel = line_panel(metric.title, x, series, SMALL, (metric.low, metric.high))
    return replace(panel, interval=RANGE)
