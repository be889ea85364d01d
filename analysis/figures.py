"""The figures of a report's page as SVG.

Drawn here rather than by matplotlib, whose panel of twelve curves with bands took 90 ms and 42 kB:
a page of a hundred panels would be over 4 MB. Each group has a colour, a marker and a dash, the
same in all figures. On the page the style sheet replaces the colours, so that they follow dark
mode. A point's title has its values. Titles and captions stand in the page's template.

A group's colour says its algorithm, its marker where training started, and its dash tells variants
apart. A hollow point is a mean over few problems, which has no interval to speak of.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.budgets import COLUMNS, TRAINING_METRICS, X_AXES, thinned
from analysis.experiment import Experiment
from analysis.findings import FEW_PROBLEMS, headline_metrics
from analysis.groups import spoken
from analysis.metrics import DISTINCT, TITLES, scores_by_step
from analysis.rendering import TimeUnit, fitting_unit

MOST_POINTS = 60  # of a line; a longer one is thinned evenly
MOST_MARKERS = 24  # points of a line, up to which each has a marker
MOST_BANDS = 6  # series with bands in a figure of its own, where none can be hidden
MEAN = ("mean", "low", "high")
TABLES = ("table", "training", "curve", "pass_at_k", "turn_curve")  # that figures are made of
ABOVE_ONE = 1.02  # the end of an axis of shares
AXES: dict[str, list[str]] = COLUMNS["axes"]  # budget → words for choosing it, and axis title
COLOURS = ("#0072b2", "#d55e00", "#00875f", "#b8548f", "#2a8fc4", "#b07800")
OF_PAGE = 10  # colours g0, g1, … of its style sheet
PLACES = {"spo": 0, "ppo": 1, "grpo": 2, "rloo": 3, "sft": 5, "raft": 6}  # others: what is free
DASHES = ("", "7 3", "2 3", "9 3 2 3", "14 4", "4 2 1 2", "1 2", "12 2 2 2 2 2")
MARKERS = (  # paths around 0, 0, about 10 wide
    "M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0z",
    "M-4,-4h8v8h-8z",
    "M0,-5.2L4.9,3.8H-4.9z",
    "M0,-5.6L5.6,0L0,5.6L-5.6,0z",
    "M0,5.2L4.9,-3.8H-4.9z",
    "M-1.6,-5h3.2v3.4H5v3.2H1.6V5h-3.2V1.6H-5v-3.2h3.4z",
)


class Style(NamedTuple):
    """A group's look; on the page the style sheet has a colour for the name."""

    name: str
    colour: str
    marker: str
    dash: str


Styles = dict[str, Style]  # by label


class Size(NamedTuple):
    """A panel's size, and of its ticks the most on each axis."""

    width: int
    height: int
    ticks: int
    kind: str


LARGE, SMALL = Size(460, 300, 6, "panel"), Size(320, 190, 4, "panel small")
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 10, 44  # margins around the plot


@dataclass(frozen=True)
class Series:
    """One group in a panel: points (n,) with, where known, intervals along y and x."""

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    x_low: np.ndarray | None = None
    x_high: np.ndarray | None = None
    line: bool = True
    markers: bool = True
    hollow: np.ndarray | None = None  # (n,), which points are over few problems


class Axis(NamedTuple):
    """An axis: its title, its range, and whether its ticks are whole numbers.

    `doubling`: its values are log₂ of what it shows.
    """

    title: str
    low: float
    high: float
    whole: bool = False
    doubling: bool = False

    def label(self, value: float) -> str:
        """Return the text of a tick or point."""
        return short_number(2**value if self.doubling else value)

    def ticks(self, most: int) -> list[float]:
        """Return round numbers in the range, at most `most`."""
        width = self.high - self.low
        step = 10 ** math.floor(math.log10(width / most))
        step *= next(m for m in (1, 2, 5, 10, 20) if width / (step * m) <= most)
        step = max(1.0, step) if self.whole else step
        first, last = math.ceil(self.low / step - 1e-9), int(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


class Panel(NamedTuple):
    """A drawing between two axes; `body`: its SVG elements."""

    labels: set[str]  # of its groups
    title: str
    body: str
    size: Size

    def file(self) -> str:
        """Return the drawing as an SVG file on white."""
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" style="background:#fff" '
            f'viewBox="0 0 {self.size.width} {self.size.height}">{self.body}</svg>\n'
        )

    def _repr_html_(self) -> str:
        return self.file()  # what a notebook shows


Choices = list[tuple[str, list[Panel]]]  # a choice of the horizontal axis, and its panels


class Figure(NamedTuple):
    """A figure of the page: its panels for each choice of an axis."""

    name: str
    choices: Choices

    @property
    def labels(self) -> set[str]:
        """The groups that any panel shows."""
        return set().union(*(panel.labels for _, panels in self.choices for panel in panels))


# Panels.


def axis_range(values: Iterable[np.ndarray | None]) -> tuple[float, float]:
    """Return a range with 0 that ends slightly above the greatest finite value."""
    every = np.concatenate([[0.0], *(part for part in values if part is not None)])
    every = every[np.isfinite(every)]
    low, high = float(every.min()), float(every.max())
    return low, high + 0.04 * (high - low) if high > low else low + 1.0


def short_number(value: float) -> str:
    """Return 0.25, 12, 300k, 1.5M or 2E (1e18)."""
    for size, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (10 if unit == "k" else 1):
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def draw_panel(
    title: str, x: Axis, y: Axis, series: Sequence[Series], styles: Styles, size: Size = LARGE
) -> Panel:
    """Draw the series over a grid. What lies beyond the y-axis is drawn at its end."""
    width, height = size.width - LEFT - RIGHT, size.height - TOP - BOTTOM

    def place(xs: Any, ys: Any) -> np.ndarray:
        across = LEFT + (np.asarray(xs, float) - x.low) / (x.high - x.low) * width
        up = (np.clip(np.asarray(ys, float), y.low, y.high) - y.low) / (y.high - y.low)
        return np.stack(np.broadcast_arrays(across, TOP + (1 - up) * height), axis=-1)

    grid, text = 'class="grid" stroke="#e8ebee"', 'font-size="12.5" fill="#56606b"'
    parts = []
    for tick in y.ticks(size.ticks):
        at = place(x.low, tick)[1]
        parts.append(
            f'<path {grid} d="M{LEFT},{at:.1f}h{width}"/><text {text} x="{LEFT - 7}" '
            f'y="{at + 4:.1f}" text-anchor="end">{short_number(tick)}</text>'
        )
    for tick in x.ticks(size.ticks):
        at = place(tick, y.low)[0]
        parts.append(
            f'<path {grid} d="M{at:.1f},{TOP}v{height}"/><text {text} x="{at:.1f}" '
            f'y="{TOP + height + 17}" text-anchor="middle">{x.label(tick)}</text>'
        )
    parts.append(
        f'<path class="axis" stroke="#56606b" fill="none" d="M{LEFT},{TOP}v{height}h{width}"/>'
        f'<text {text} x="{LEFT + width / 2}" y="{size.height - 8}" '
        f'text-anchor="middle">{escape(x.title)}</text>'
    )
    for one in series:
        style = styles[one.label]
        known = np.isfinite(one.x) & np.isfinite(one.y)
        points = place(one.x[known], one.y[known])
        dash = f' stroke-dasharray="{style.dash}"' if style.dash else ""
        stroke = f'fill="none" stroke="currentColor"{dash}'
        label = escape(spoken(one.label))
        opened = f'<g class="series {style.name}" data-group="{escape(one.label)}"'
        parts.append(f'{opened} color="{style.colour}">')
        if one.low is not None and one.high is not None:
            at = known & np.isfinite(one.low) & np.isfinite(one.high)
            low, high = place(one.x[at], one.low[at]), place(one.x[at], one.high[at])
            if one.x_low is not None and one.x_high is not None:
                left, right = (place(v[at], one.y[at]) for v in (one.x_low, one.x_high))
                bars = "".join(map(_path, [*zip(low, high, strict=True)]))
                bars += "".join(map(_path, [*zip(left, right, strict=True)]))
                parts.append(f'<path class="bar" {stroke} d="{bars}"/>')
            elif len(low) > 1 and (one.low[at] != one.high[at]).any():
                band = _path([*high, *low[::-1]])
                parts.append(f'<path class="band" opacity=".55" {stroke} d="{band}z"/>')
        if one.line and len(points) > 1:
            parts.append(f'<path class="line" stroke-width="2" {stroke} d="{_path(points)}"/>')
        if len(points) == 1 or (one.markers and len(points) <= MOST_MARKERS):
            for i, (across, up) in zip(np.flatnonzero(known), points, strict=True):
                said = f"{label}: {y.title} {one.y[i]:.4g} at {x.label(one.x[i])}"
                hollow = " hollow" if one.hollow is not None and one.hollow[i] else ""
                parts.append(
                    f'<path class="marker{hollow}" fill="currentColor" d="{style.marker}" '
                    f'transform="translate({across:.1f},{up:.1f})"><title>{said}</title></path>'
                )
            if not one.line:
                end = across > LEFT + width / 2
                parts.append(
                    f'<text class="end" x="{across + (-8 if end else 8):.1f}" y="{up + 4:.1f}" '
                    f'text-anchor="{"end" if end else "start"}">{label}</text>'
                )
        parts.append("</g>")
    return Panel({one.label for one in series}, title, "".join(parts), size)


def legend_panel(
    title: str, x: Axis, y: Axis, series: Sequence[Series], names_at: int = LARGE.width // 2
) -> Panel:
    """Draw the series with their names in the panel, for a file of its own."""
    names = list(dict.fromkeys(one.label for one in series))
    styles = {
        name: Style("", COLOURS[i % len(COLOURS)], MARKERS[0], DASHES[i % len(DASHES)])
        for i, name in enumerate(names)
    }
    if len(names) > MOST_BANDS:
        series = [replace(one, low=None) for one in series]
    panel = draw_panel(title, x, y, series, styles)
    texts = "".join(
        f'<text x="{names_at}" y="{30 + 17 * i}" font-size="12.5" '
        f'fill="{styles[name].colour}">{escape(name)}</text>'
        for i, name in enumerate(names)
    )
    return panel._replace(body=panel.body + texts)


def _path(points: Iterable[np.ndarray]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def line_panel(
    title: str,
    x: str,
    series: Sequence[Series],
    styles: Styles,
    size: Size = LARGE,
    bounds: tuple[float, float] = (-math.inf, ABOVE_ONE),
) -> Panel:
    """Draw lines against budget `x`; the vertical axis has 0 and does not exceed `bounds`."""
    x_title = AXES[x][1]
    if x == "wall_time":
        unit: TimeUnit = fitting_unit(value for one in series for value in one.x)
        series = [replace(one, x=one.x / unit.seconds) for one in series]
        x_title = x_title.format(unit.name)
    low, high = axis_range(part for one in series for part in (one.y, one.low, one.high))
    x_axis = Axis(x_title, *axis_range(one.x for one in series), whole=x == "step")
    y_axis = Axis(title, max(low, bounds[0]), min(high, bounds[1]))
    return draw_panel(title, x_axis, y_axis, series, styles, size)


def lines(
    table: pd.DataFrame, x: str, columns: Sequence[str], markers: bool = True, line: bool = True
) -> list[Series]:
    """Return a series per label; `columns`: of the values and of the ends of their intervals."""
    found = []
    for label, part in table.groupby("label", sort=False):
        part = part.iloc[thinned(len(part), MOST_POINTS)]
        y, low, high, *across = (part[name].to_numpy(float) for name in columns)
        x_low, x_high = across or (None, None)
        hollow = None
        if (problems := f"{columns[0]}_problems") in part:
            hollow = part[problems].to_numpy() < FEW_PROBLEMS
            low, high = np.where(hollow, np.nan, low), np.where(hollow, np.nan, high)
        one = Series(str(label), part[x].to_numpy(float), y, low, high, x_low, x_high)
        found.append(replace(one, line=line, markers=markers, hollow=hollow))
    return found


def with_ends(name: str) -> tuple[str, str, str]:
    """Return the columns of a value and its interval."""
    return name, f"{name}_low", f"{name}_high"


# Figures.


def group_styles(experiment: Experiment) -> Styles:
    """Return the style of each base and group: colour, marker and dash."""
    algorithms = sorted({model.runs[0].algo for model in experiment.trained})
    free = cycle(i for i in range(OF_PAGE) if i not in map(PLACES.get, algorithms))
    places = {name: PLACES[name] if name in PLACES else next(free) for name in algorithms}
    starts = zip(experiment.bases, cycle(MARKERS), strict=False)
    styles = {base.label: Style("base", "", marker, "4 4") for base, marker in starts}
    alike: Counter[tuple[int, str]] = Counter()
    for model in experiment.trained:
        start = styles.get(experiment.starts.get(model.label, ""))
        look = places[model.runs[0].algo], start.marker if start else MARKERS[0]
        styles[model.label] = Style(f"g{look[0]}", "", look[1], DASHES[alike[look] % len(DASHES)])
        alike[look] += 1
    return styles


def draw_figures(
    experiment: Experiment, tables: Mapping[str, pd.DataFrame]
) -> tuple[Styles, list[Figure]]:
    """Return the style of each group, and the figures that have a panel."""
    styles, ks, window = group_styles(experiment), experiment.ks, experiment.window
    results, training, curve, pass_at_k, turns = (
        table[table["label"].isin(list(styles))] if len(table) else table
        for table in (tables[f"{name}.csv"] for name in TABLES)
    )
    curve = _with_problems(curve, experiment)
    choices = {
        "headline": headline_choices(results, curve, ks, styles),
        "learning": learning_choices(training, curve, styles, window),
        "training": training_choices(training, styles),
        "pass_at_k": [("", pass_at_k_panels(pass_at_k, styles))],
        "turns": turn_choices(turns, styles),
    }
    kept = {n: [one for one in of if one[1] or n == "headline"] for n, of in choices.items()}
    return styles, [Figure(name, of) for name, of in kept.items() if of]


def _with_problems(curve: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Add the problems that the diversity of each evaluation is over, mean over seeds."""
    name = f"{DISTINCT}_problems"
    rows = [
        (group.label, step, problems)
        for group in experiment.groups
        for run in group.runs
        if (grid := scores_by_step(run, experiment.ks).get(DISTINCT))
        for step, problems in zip(grid.seeds, (grid.weights > 0).sum(axis=1), strict=True)
    ]
    counts = pd.DataFrame(rows, columns=["label", "step", name]).groupby(["label", "step"])
    found, places = counts[name].mean().to_dict(), zip(curve["label"], curve["step"], strict=True)
    return curve.assign(**{name: [found.get(place, 0.0) for place in places]})


def headline_choices(
    results: pd.DataFrame, curve: pd.DataFrame, ks: Sequence[int], styles: Styles
) -> Choices:
    """Draw what stands beside the forest plot of each metric: the front of pass@k, or diversity."""
    first, last, choices = f"pass@{ks[0]}", f"pass@{ks[-1]}", []
    for metric in headline_metrics(ks):
        y = metric if metric != first else last
        drawn = y != first and results[y].notna().any()
        choices.append((metric, [front_panel(results, curve, first, y, styles)] if drawn else []))
    return choices


def front_panel(
    results: pd.DataFrame, curve: pd.DataFrame, x: str, y: str, styles: Styles
) -> Panel:
    """Draw y over pass@1: a line along training, and a point at its end."""
    results = results.dropna(subset=[x, y])
    curve = curve.dropna(subset=[x, y]) if {x, y} <= set(curve) else curve[:0]
    paths = [replace(one, low=None) for one in lines(curve, x, with_ends(y), markers=False)]
    points = lines(results, x, (*with_ends(y), *with_ends(x)[1:]), line=False)
    series = [*paths, *points]
    across = Axis(x, *axis_range([one.x for one in series] + [one.x_high for one in points]))
    highest = axis_range([one.y for one in series] + [one.high for one in points])[1]
    up = Axis(TITLES.get(y, y), 0, min(highest, ABOVE_ONE))
    return draw_panel(f"{up.title} against {x}", across, up, series, styles)


def learning_choices(
    training: pd.DataFrame, curve: pd.DataFrame, styles: Styles, window: int
) -> Choices:
    """Draw rewards and evaluations during training, against each axis that was recorded."""
    choices, metrics = [], [str(name) for name in curve if f"{name}_low" in curve]
    for x, (choice, _) in AXES.items():
        recorded = curve.dropna(subset=[x])
        if not (recorded["step"] > 0).any():
            continue
        panels = [
            line_panel(TITLES.get(name, name), x, lines(recorded, x, with_ends(name)), styles)
            for name in metrics
            if name != x and recorded[name].notna().any()
        ]
        if x in X_AXES and "reward_mean" in training and training["reward_mean"].notna().any():
            rewarded = training.dropna(subset=[x])
            series = lines(rewarded, x, with_ends("reward_mean"), markers=False)
            title = f"training reward, mean of {window} steps"
            panels.insert(0, line_panel(title, x, series, styles))
        choices.append((choice, panels))
    return choices


def training_choices(curve: pd.DataFrame, styles: Styles) -> Choices:
    """Draw training.csv, a small panel per metric, against each axis that was recorded."""
    choices = []
    for x in X_AXES:
        panels = []
        for metric in TRAINING_METRICS if curve[x].notna().any() else ():
            recorded = curve.dropna(subset=[x, metric.name]) if metric.name in curve else None
            if recorded is not None and len(recorded):
                series = lines(recorded, x, with_ends(metric.name), markers=False)
                # Few far values would flatten the panel.
                low, high = np.nanquantile(np.append(recorded[metric.name], 0.0), [0.01, 0.99])
                room = 0.1 * (high - low) or 1.0
                bounds = max(metric.low, low - room), min(metric.high, high + room)
                panels.append(line_panel(metric.title, x, series, styles, SMALL, bounds))
        choices.append((AXES[x][0], panels))
    return choices


def pass_at_k_panels(table: pd.DataFrame, styles: Styles) -> list[Panel]:
    """Draw pass@k against k, on a log axis, with the base."""
    if table["k"].max() > MOST_MARKERS:  # only powers of two, so that each has its marker
        table = table[np.log2(table["k"]) % 1 == 0]
    table = table.assign(tries=np.log2(table["k"].astype(float)))
    x = Axis("k, programs per problem", -0.1, table["tries"].max() + 0.1, True, doubling=True)
    y = Axis("pass@k", 0, min(axis_range([table["high"].to_numpy()])[1], ABOVE_ONE))
    series, title = lines(table, "tries", MEAN), "pass@k: at least one of k programs is right"
    return [draw_panel(title, x, y, series, styles)] if series else []


def turn_choices(curve: pd.DataFrame, styles: Styles) -> Choices:
    """Draw turn_curve.csv, a panel for each number of answers; none without conversations."""
    choices = []
    for x in X_AXES if len(curve) else ():
        recorded = curve.dropna(subset=[x])
        trained = (recorded["step"] > 0).any()
        panels = [
            line_panel(f"solved in {turn} answers", x, lines(part, x, MEAN), styles)
            for turn, part in (recorded.groupby("turn") if trained else ())
        ]
        choices.append((AXES[x][0], panels))
    return choices
