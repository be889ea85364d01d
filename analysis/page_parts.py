"""What more budget would bring: the fitted curves as a figure and as tables of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.budgets import X_AXES
from analysis.figures import (
    AXIS_CHOICES,
    LARGE,
    Axis,
    Figure,
    Panel,
    Series,
    Styles,
    axis_range,
    by_label,
    draw_panel,
    floats,
    line,
    line_panel,
)
from analysis.metrics import Metric
from analysis.rendering import NOTHING, Cells, Row, count, ends, interval, missing, number, records
from analysis.saturation import LEAST_EVALUATIONS, TAIL, CurveFit
from analysis.turns import SHARES, TurnPlan, solve_metrics

AHEAD = 2.0  # the curves are drawn up to twice the budget
POINTS = 40  # of a line
TITLES = {
    "step": "training steps",
    "generated_tokens": "tokens generated in training",
    "judged_programs": "programs judged in training",
    "flops": "FLOPs in training",
    "wall_time": "minutes without evaluations",
}
HEADING = ["", "metric", "A", "B", "C_mid", "at twice the budget", "second half: error, at its end"]
DIFFERENCE_HEADING = ["", "metric", "difference of A", "difference of B"]


class FitTables(NamedTuple):
    """The tables of one axis; the second has no rows without a pair of fitted groups."""

    axis: str
    fits: Cells
    differences: Cells


def fit_figure(fits: Sequence[CurveFit], styles: Styles) -> Figure | None:
    """Draw the fitted curves up to twice the budget, with the scores that they are fitted to."""
    drawn = [one for one in fits if one.curve is not None and one.measured.label in styles]
    choices = []
    for axis in dict.fromkeys(one.measured.axis for one in drawn):
        on_axis = [one for one in drawn if one.measured.axis == axis]
        metrics = dict.fromkeys(one.measured.metric for one in on_axis)
        panels = [_panel(axis, metric, on_axis, styles) for metric in metrics]
        choices.append((AXIS_CHOICES[axis], panels))
    if not choices:
        return None
    caption = (
        "Curves fitted to the evaluations (markers), R0 + (A − R0) / (1 + (C_mid / C)^B) over the "
        "budget C, drawn up to twice the budget spent, with 95 % intervals over seeds and "
        "problems. Beyond the markers they are predictions."
    )
    labels = {one.measured.label for one in drawn}
    return Figure("fits", "What more budget would bring", caption, labels, choices)


def _panel(axis: str, metric: str, fits: Sequence[CurveFit], styles: Styles) -> Panel:
    fits = [one for one in fits if one.measured.metric == metric]
    series = [part for one in fits for part in _series(one, styles)]
    low, high = axis_range([y for one in series for y in (*one.low, *one.high, *one.y)])
    description = "; ".join(
        f"{one.measured.label} fitted to {one.measured.scores[-1]:.3f} at the end, then towards "
        f"{float(one.curve.asymptote):.3f}"
        for one in fits
        if one.curve is not None
    )
    return draw_panel(
        metric,
        Axis(TITLES[axis], *axis_range([x for one in series for x in one.x])),
        Axis(metric, low, min(high, 1.02)),
        series,
        description,
        replace(LARGE, marks=0),  # a marker is an evaluation
    )


def _series(one: CurveFit, styles: Styles) -> list[Series]:
    """Return the curve with its band, and each measured score as a marker of its own."""
    assert one.curve is not None and one.replicates is not None
    measured, style = one.measured, styles[one.measured.label]
    unit = 60 if measured.axis == "wall_time" else 1
    budget = np.linspace(measured.budget[1] / 4, AHEAD * measured.budget[-1], POINTS)
    low, high = np.quantile(one.replicates.at(budget), [TAIL, 1 - TAIL], axis=0)
    line = Series(
        measured.label,
        style,
        (budget / unit).tolist(),
        one.curve.at(budget).tolist(),
        low.tolist(),
        high.tolist(),
        markers=False,
    )
    points = zip((measured.budget / unit).tolist(), measured.scores.tolist(), strict=True)
    return [line, *(Series(measured.label, style, [x], [y], [], []) for x, y in points)]


def fit_tables(fits: pd.DataFrame, differences: pd.DataFrame) -> list[FitTables]:
    """Return the tables of each axis; none where no group has evaluations enough."""
    if not len(fits) or fits["evaluations"].max() < LEAST_EVALUATIONS:
        return []
    tables = []
    for axis, part in fits.groupby("axis", sort=False):
        rows = [_fit_cells(row) for row in records(part)]
        pairs = differences[(differences["axis"] == axis) & (differences["refused"] == "")]
        cells = [
            [
                f"{row['a']} − {row['b']}",
                row["metric"],
                _difference(row, "A"),
                _difference(row, "B"),
            ]
            for row in records(pairs)
        ]
        name = AXIS_CHOICES[str(axis)]
        tables.append(FitTables(name, (HEADING, rows), (DIFFERENCE_HEADING, cells)))
    return tables


def _fit_cells(row: Row) -> list[str]:
    if row["refused"]:
        return [row["label"], row["metric"], f"no fit: {row['refused']}", *[NOTHING] * 4]
    error = NOTHING
    if not missing(row["second_half_rms"]):
        error = f"{number(row['second_half_rms'])}, {row['second_half_last']:+.3f}"
    parameters = (_estimate(row, "A"), _estimate(row, "B", 2), _midpoint(row))
    return [row["label"], row["metric"], *parameters, _estimate(row, "at_twice"), error]


def _estimate(row: Row, name: str, digits: int = 3) -> str:
    return f"{number(row[name], digits)} {interval(row, name, digits)}".strip()


def _midpoint(row: Row) -> str:
    values: list[Any] = [row[f"C_mid{end}"] for end in ("", "_low", "_high")]
    if missing(values[0]):
        return NOTHING
    if row["axis"] == "wall_time":
        texts = [f"{value / 60:.1f}" for value in values]
        return f"{texts[0]} min [{texts[1]}, {texts[2]}]"
    middle, low, high = map(count, values)
    return f"{middle} [{low}, {high}]"


def _difference(row: Row, name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("_difference", "_low", "_high"))
    if missing(value):
        return NOTHING
    return f"{value:+.3f}" if missing(low) else f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"


class TurnTable(NamedTuple):
    """A table of turns.csv: its caption, its cells and what its columns mean."""

    caption: str
    cells: Cells
    meanings: list[tuple[str, str]]


def turn_page_tables(table: pd.DataFrame, plan: TurnPlan) -> list[TurnTable]:
    """Return the tables of a section from turns.csv."""
    return [
        _page_table("Solve rates", table, solve_metrics(plan)),
        _page_table("What later answers change", table, SHARES),
    ]


def _page_table(caption: str, table: pd.DataFrame, metrics: Sequence[Metric]) -> TurnTable:
    shown = [metric for metric in metrics if metric.name in set(table["metric"])]
    by_cell = {(row["label"], row["metric"]): row for row in records(table)}
    rows = []
    for label in table["label"].unique():
        cells = [by_cell.get((label, metric.name)) for metric in shown]
        if any(cells):  # a model without turns has no answer to change
            rows.append([label, *(_cell(cell) for cell in cells)])
    heading = ["", *(metric.title for metric in shown)]
    return TurnTable(caption, (heading, rows), [(m.title, m.meaning) for m in shown])


def _cell(row: Row | None) -> str:
    if row is None:
        return NOTHING
    return f"{number(row['mean'])} {ends(row['low'], row['high'], 2)}".strip()


def turn_figure(curve: pd.DataFrame, styles: Styles) -> Figure | None:
    """Draw turn_curve.csv, a panel for each number of answers; None without conversations."""
    curve = curve[curve["label"].isin(list(styles))] if len(curve) else curve
    if not len(curve):
        return None
    turns = sorted(curve["turn"].unique())
    choices = [
        (AXIS_CHOICES[x], [_turn_panel(curve, x, int(turn), styles) for turn in turns])
        for x in X_AXES
        if (curve.dropna(subset=[x])["step"] > 0).any()
    ]
    if not choices:  # nothing was evaluated after training
        return None
    caption = (
        "Share of conversations that are solved with at most so many answers, at each evaluation. "
        "Where the lines of more answers rise and that of the first one does not, further answers "
        "gained. Arms with withheld or foreign feedback show whether reading it did that. Thin "
        "lines: 95 % intervals."
    )
    labels = {label for label in styles if label in set(curve["label"])}
    return Figure("turns", "Solve rate by turn", caption, labels, choices)


def _turn_panel(curve: pd.DataFrame, x: str, turn: int, styles: Styles) -> Panel:
    part = curve[curve["turn"] == turn].dropna(subset=[x])
    series = [
        line(label, styles, floats(rows[x]), rows, ("mean", "low", "high"))
        for label, rows in by_label(part)
    ]
    return line_panel("first answer" if turn == 1 else f"in {turn} answers", x, series)


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
