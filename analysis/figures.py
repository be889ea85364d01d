"""Panels of the page's figures as SVG: scales, grid, lines with intervals, points with crosses.

Colours come from the page's style by the classes g0 … g5 (or base), so that they follow dark mode.
Each series also has its own marker and dash, so that it can be recognised without colour. Intervals
of lines are drawn as two thin edges: where filled areas overlap, their colours would mix to grey.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.budgets import TRAINING_METRICS, WINDOWS, X_AXES, TrainingMetric, thinned
from analysis.metrics import DISTINCT, TITLES
from analysis.rendering import Row, count, fitting_unit, missing, records
from envs.readable import readable

COLOURS = 6
MARKERS = ("circle", "square", "triangle", "diamond", "wedge", "plus")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "14 4", "4 2 1 2")
# Paths around 0, 0, about 10 wide.
PATHS = {
    "circle": "M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0z",
    "square": "M-4,-4h8v8h-8z",
    "triangle": "M0,-5.2L4.9,3.8H-4.9z",
    "diamond": "M0,-5.6L5.6,0L0,5.6L-5.6,0z",
    "wedge": "M0,5.2L4.9,-3.8H-4.9z",
    "plus": "M-1.6,-5h3.2v3.4H5v3.2H1.6V5h-3.2V1.6H-5v-3.2h3.4z",
    # Where a point lies beyond the upper or the lower end of the axis.
    "above": "M0,1L5,9H-5z",
    "below": "M0,-1L5,-9H-5z",
    "cross": "M-4.6,-3L-3,-4.6L0,-1.6L3,-4.6L4.6,-3L1.6,0L4.6,3L3,4.6L0,1.6L-3,4.6L-4.6,3L-1.6,0z",
}
Point = tuple[float, float]


@dataclass(frozen=True)
class Size:
    """A panel's size and the margins around its plot, in the units of the drawing."""

    width: int = 460
    height: int = 300
    left: int = 46
    right: int = 14
    top: int = 10
    bottom: int = 44
    ticks: int = 6  # at most, on each axis
    marks: int = 5  # of a line whose points have no markers of their own, so that it is recognised
    kind: str = ""  # further class of the drawing

    @property
    def plot(self) -> tuple[int, int, int, int]:
        """Left, top, width and height of the plot."""
        right, bottom = self.left + self.right, self.top + self.bottom
        return self.left, self.top, self.width - right, self.height - bottom


LARGE = Size()
# For a figure of many panels.
SMALL = Size(width=320, height=190, left=44, bottom=40, ticks=4, marks=2, kind=" small")


@dataclass(frozen=True)
class Style:
    """A group's look in every figure: its number gives colour, marker and dash."""

    number: int
    base: bool = False

    @property
    def colour(self) -> str:
        return "base" if self.base else f"g{self.number % COLOURS}"

    @property
    def marker(self) -> str:
        turn = self.number // COLOURS
        return PATHS["cross" if self.base else MARKERS[(self.number + turn) % len(MARKERS)]]

    @property
    def dash(self) -> str:
        turn = self.number // COLOURS
        return "4 4" if self.base else DASHES[(self.number + turn) % len(DASHES)]

    @property
    def dash_attribute(self) -> str:
        return f' stroke-dasharray="{self.dash}"' if self.dash else ""


@dataclass(frozen=True)
class Series:
    """One group in a panel: points with, where known, intervals along y and x."""

    label: str
    style: Style
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    x_low: Sequence[float] = ()
    x_high: Sequence[float] = ()
    markers: bool = True


@dataclass(frozen=True)
class Axis:
    """An axis: its title, its range, and whether its ticks are whole numbers."""

    title: str
    low: float
    high: float
    whole: bool = False

    def ticks(self, most: int = 6) -> list[float]:
        """Return round numbers in the range, at most `most`."""
        width = self.high - self.low
        step = 10 ** math.floor(math.log10(width / most))
        step *= next(m for m in (1, 2, 5, 10, 20) if width / (step * m) <= most)
        if self.whole:
            step = max(1.0, step)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, int(self.high / step + 1e-9) + 1)]


def axis_range(
    values: Sequence[float], least: float = 0.0, room: float = 0.04
) -> tuple[float, float]:
    """Return a range from `least` or below to slightly above the greatest finite value."""
    finite = [v for v in values if math.isfinite(v)]
    low, high = min([least, *finite]), max([least, *finite])
    return low, (high + room * (high - low)) if high > low else low + 1.0


def short_number(value: float) -> str:
    """Return 0.25, 12, 300k, 1.5M or 2E (1e18)."""
    for size, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (10 if unit == "k" else 1):
            return f"{value / size:g}{unit}"
    return f"{value:g}"


@dataclass(frozen=True)
class Panel:
    """A drawing; `description` tells screen readers what it shows.

    `x`, `y` and `series` are the drawn data, and `interval` says what its low and high ends are.
    `note` says what lies beyond the axis, "" if nothing does.
    """

    title: str
    description: str
    body: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    size: Size = LARGE
    interval: str = "95 % interval"
    note: str = ""

    def svg(self, key: str = "") -> str:
        """Return the drawing; `key` names its data on the page (`analysis.report.page.points`)."""
        data = f' data-panel="{escape(key)}"' if key else ""
        return (
            f'<svg class="panel{self.size.kind}" viewBox="0 0 {self.size.width} '
            f'{self.size.height}" role="img"{data} '
            f'aria-label="{escape(self.title)}: {escape(self.description)}">{self.body}</svg>'
        )


def draw_panel(
    title: str, x: Axis, y: Axis, series: Sequence[Series], description: str, size: Size = LARGE
) -> Panel:
    """Draw the series over a grid, between two axes.

    What lies beyond the y-axis is drawn at its end, each point with a triangle.
    """
    left, top, width, height = size.plot

    def pixel(px: float, py: float) -> Point:
        across = (px - x.low) / (x.high - x.low)
        up = (min(max(py, y.low), y.high) - y.low) / (y.high - y.low)
        return left + across * width, top + height - up * height

    parts = []
    for tick in y.ticks(size.ticks):
        at = pixel(x.low, tick)[1]
        parts.append(f'<path class="grid" d="M{left},{at:.1f}h{width}"/>')
        parts.append(
            f'<text class="tick" x="{left - 7}" y="{at + 4:.1f}" '
            f'text-anchor="end">{short_number(tick)}</text>'
        )
    for tick in x.ticks(size.ticks):
        at = pixel(tick, y.low)[0]
        parts.append(f'<path class="grid" d="M{at:.1f},{top}v{height}"/>')
        parts.append(
            f'<text class="tick" x="{at:.1f}" y="{top + height + 17}" '
            f'text-anchor="middle">{short_number(tick)}</text>'
        )
    parts.append(f'<path class="axis" d="M{left},{top}v{height}h{width}"/>')
    parts.append(
        f'<text class="axis-title" x="{left + width / 2}" y="{size.height - 8}" '
        f'text-anchor="middle">{escape(x.title)}</text>'
    )
    drawn = [
        _draw_series(one, pixel, y, (place + 0.5) / len(series), size.marks)
        for place, one in enumerate(series)
    ]
    return Panel(title, description, "".join([*parts, *drawn]), x, y, series, size)


def _draw_series(
    series: Series, pixel: Callable[[float, float], Point], axis: Axis, offset: float, marks: int
) -> str:
    """Draw the interval's edges or crosses, line and markers.

    Points without markers of their own get a few, `marks` on the line. `offset` in (0, 1) differs
    between the lines of a panel, so that their few markers are apart.
    """
    finite = [
        i for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)) if _all_finite(x, y)
    ]
    points = [pixel(series.x[i], series.y[i]) for i in finite]
    beyond = [
        _draw_triangle("above" if series.y[i] > axis.high else "below", point)
        for i, point in zip(finite, points, strict=True)
        if not axis.low <= series.y[i] <= axis.high
    ]
    parts = [f'<g class="series {series.style.colour}" data-group="{escape(series.label)}">']
    crosses = len(series.x_low) > 0
    if len(series.low) and not crosses:
        parts += _draw_band(series, finite, pixel)
    if len(points) > 1:
        parts.append(f'<path class="line" d="{_path(points)}"{series.style.dash_attribute}/>')
    if crosses:
        for i in finite:
            if _all_finite(series.low[i], series.x_low[i]):
                x, y = series.x[i], series.y[i]
                across = pixel(series.x_low[i], y), pixel(series.x_high[i], y)
                along = pixel(x, series.low[i]), pixel(x, series.high[i])
                parts += [f'<path class="bar" d="{_path(bar)}"/>' for bar in (across, along)]
    if not series.markers and len(points) > 1:
        points = [points[int((i + offset) / marks * len(points))] for i in range(marks)]
    parts += [_draw_marker(series.style, point) for point in points]
    return "".join([*parts, *beyond, "</g>"])


def _draw_band(
    series: Series, finite: Sequence[int], pixel: Callable[[float, float], Point]
) -> list[str]:
    known = [i for i in finite if _all_finite(series.low[i], series.high[i])]
    if len(known) <= 1 or all(series.low[i] == series.high[i] for i in known):
        return []
    outline = [pixel(series.x[i], series.high[i]) for i in known]
    outline += [pixel(series.x[i], series.low[i]) for i in reversed(known)]
    return [f'<path class="band" d="{_path(outline)}z"{series.style.dash_attribute}/>']


def _draw_marker(style: Style, point: Point) -> str:
    place = f'transform="translate({point[0]:.1f},{point[1]:.1f})"'
    return f'<path class="marker" d="{style.marker}" {place}/>'


def _draw_triangle(side: str, point: Point) -> str:
    place = f'transform="translate({point[0]:.1f},{point[1]:.1f})"'
    return f'<path class="beyond" d="{PATHS[side]}" {place}/>'


def swatch(style: Style) -> str:
    """Return the line and marker of a group, for keys and tables."""
    return (
        f'<svg class="swatch {style.colour}" viewBox="0 0 34 14" aria-hidden="true">'
        f"{swatch_paths(style)}</svg>"
    )


def swatch_paths(style: Style) -> str:
    """Return the paths of a swatch, 34 wide and 14 high."""
    return (
        f'<path class="line" d="M1,7h32"{style.dash_attribute}/>'
        f'<path class="marker" d="{style.marker}" transform="translate(17,7)"/>'
    )


def _path(points: Sequence[Point]) -> str:
    """Return a line through the points, in steps from one to the next, which are short to write."""
    rounded = [(round(10 * x), round(10 * y)) for x, y in points]
    steps = [(x - px, y - py) for (px, py), (x, y) in pairwise(rounded)]
    first = f"M{rounded[0][0] / 10:g},{rounded[0][1] / 10:g}l"
    return first + " ".join(f"{x / 10:g},{y / 10:g}" for x, y in steps)


def _all_finite(*values: float) -> bool:
    return all(math.isfinite(value) for value in values)


MOST_DRAWN = 12  # groups; more lines than that cannot be distinguished
MOST_POINTS = 120  # of a line; a longer one is thinned evenly
AXIS_TITLES = {
    "step": "training steps",
    "generated_tokens": "tokens generated in training",
    "judged_programs": "programs judged in training",
    "flops": "floating-point operations of the models in training",
    "wall_time": "wall time in {unit}, without evaluations",
    "kl_ref": "distance from the base: KL in nats per response",
}
AXIS_CHOICES = {
    "step": "steps",
    "generated_tokens": "tokens",
    "judged_programs": "judged programs",
    "flops": "FLOPs",
    "wall_time": "wall time",
    "kl_ref": "distance from the base",
}
REWARD = "training reward"
RANGE = "range over seeds"
Styles = dict[str, Style]  # by label


@dataclass(frozen=True)
class Figure:
    """A figure: its caption, the labels it shows, and its panels for each choice of an axis."""

    name: str
    title: str
    caption: str
    labels: set[str]
    choices: list[tuple[str, list[Panel]]]


def group_styles(labels: Iterable[str], bases: Iterable[str]) -> Styles:
    """Return each label's style, the same in all figures of a section."""
    bases = set(bases)
    groups = [label for label in labels if label not in bases]
    return {label: Style(i) for i, label in enumerate(groups)} | {
        label: Style(i, base=True) for i, label in enumerate(sorted(bases))
    }


def drawn_labels(results: pd.DataFrame, ks: Sequence[int]) -> list[str]:
    """Return the labels to draw: bases, and of many groups the MOST_DRAWN with the best pass@k."""
    bases = list(results.loc[results["step"] == 0, "label"])[:3]
    trained = results[results["step"] > 0]
    best = set(trained.nlargest(MOST_DRAWN, f"pass@{ks[0]}")["label"])
    return bases + [label for label in trained["label"] if label in best]


# The headline: groups as points.


def headline_figure(results: pd.DataFrame, ks: Sequence[int], styles: Styles) -> Figure | None:
    """Draw pass@1 against pass@10 and against diversity, a point per group."""
    x = f"pass@{ks[0]}"
    others = [name for name in (f"pass@{ks[-1]}", DISTINCT) if name != x]
    rows = records(results[results["label"].isin(list(styles))])
    panels = [_point_panel(rows, x, y, styles) for y in others if any(_has(r, y) for r in rows)]
    if not panels:
        return None
    caption = (
        "One point per group at the end of training, and one for the base, the model before "
        "training. Further right is better in one try. Further up is better in several tries, or "
        "means more distinct accepted programs. Bars are 95 % intervals."
    )
    labels = {r["label"] for r in rows if _has(r, x) and any(_has(r, y) for y in others)}
    return Figure("headline", "At a glance", caption, labels, [("", panels)])


def _has(row: Row, metric: str) -> bool:
    return not missing(row[metric])


def _point_panel(rows: Sequence[Row], x: str, y: str, styles: Styles) -> Panel:
    """Draw groups as points, with intervals along both axes."""
    series = [
        Series(
            label=row["label"],
            style=styles[row["label"]],
            x=[row[x]],
            y=[row[y]],
            low=[row[f"{y}_low"]],
            high=[row[f"{y}_high"]],
            x_low=[row[f"{x}_low"]],
            x_high=[row[f"{x}_high"]],
        )
        for row in rows
        if _has(row, x) and _has(row, y)
    ]
    x_axis, y_axis = (
        Axis(_title(name), *_share_range([row[f"{name}_high"] for row in rows])) for name in (x, y)
    )
    description = "; ".join(f"{one.label} {one.x[0]:.3f}, {one.y[0]:.3f}" for one in series)
    return draw_panel(f"{_title(y)} against {_title(x)}", x_axis, y_axis, series, description)


def _share_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of an axis of shares: from 0 to hardly beyond 1."""
    low, high = axis_range(values)
    return low, min(high, 1.02)


def _title(metric: str) -> str:
    return TITLES.get(metric, metric)


# Lines: learning curves, and pass@k against k.


def learning_figure(
    rewards: pd.DataFrame, curve: pd.DataFrame, metrics: Sequence[str], styles: Styles, window: int
) -> Figure | None:
    """Draw rewards and evaluations during training, against each axis that was recorded."""
    labels = [label for label in styles if label in set(curve["label"])]
    curve = curve[curve["label"].isin(labels)]
    rewards = rewards[rewards["label"].isin(labels)]
    choices = []
    for x in AXIS_TITLES:
        recorded = curve.dropna(subset=[x])
        if not (recorded["step"] > 0).any():
            continue
        panels = [
            _metric_panel(recorded, x, metric, styles)
            for metric in metrics
            if recorded[metric].notna().any()
        ]
        rewarded = rewards.dropna(subset=[x]) if x in rewards else rewards.head(0)
        if rewarded["mean"].notna().any():
            panels.insert(0, _reward_panel(rewarded, x, styles, window))
        choices.append((AXIS_CHOICES[x], panels))
    if not choices:
        return None
    caption = (
        "From the base model (left) to the end of training. Choose the horizontal axis: two "
        "algorithms may spend very different budgets in equally many steps. Thin lines: 95 % "
        "intervals; for the reward on training problems, the range over seeds; of more than six "
        "groups, that of the chosen one. Tokens and "
        "programs include the base model's responses that an algorithm requested."
    )
    return Figure("learning", "Learning curves", caption, set(labels), choices)


def floats(values: pd.Series) -> list[float]:
    """Return a column as floats."""
    return [float(value) for value in values.to_numpy(float)]


def by_label(table: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    """Return label and rows of each group, in the table's order."""
    return ((str(label), part) for label, part in table.groupby("label", sort=False))


def line(
    label: str, styles: Styles, x: list[float], part: pd.DataFrame, columns: Sequence[str]
) -> Series:
    """Return one group's line, with `columns` for its values and the ends of their intervals."""
    y, low, high = (floats(part[column]) for column in columns)
    return Series(label, styles[label], x, y, low, high)


def _metric_panel(curve: pd.DataFrame, x: str, metric: str, styles: Styles) -> Panel:
    columns = (metric, f"{metric}_low", f"{metric}_high")
    series = [
        line(label, styles, floats(part[x]), part, columns) for label, part in by_label(curve)
    ]
    return line_panel(_title(metric), x, series)


def _reward_panel(rewards: pd.DataFrame, x: str, styles: Styles, window: int) -> Panel:
    series = []
    for label, whole in by_label(rewards):
        part = whole.iloc[thinned(len(whole), MOST_POINTS)]
        one = line(label, styles, floats(part[x]), part, ("mean", "low", "high"))
        series.append(replace(one, markers=False))
    smoothing = f", mean of {window} steps" if window > 1 else ""
    return replace(line_panel(f"{REWARD}{smoothing}", x, series), interval=RANGE)


def line_panel(
    title: str,
    x: str,
    series: Sequence[Series],
    size: Size = LARGE,
    bounds: tuple[float, float] = (-math.inf, 1.02),
) -> Panel:
    """Draw lines against axis `x`; the vertical axis has 0 and does not exceed `bounds`.

    Wall times, in seconds, are drawn in the unit that fits them.
    """
    x_title = AXIS_TITLES[x]
    if x == "wall_time":
        unit = fitting_unit(value for one in series for value in one.x)
        x_title = x_title.format(unit=unit.name)
        series = [replace(one, x=[value / unit.seconds for value in one.x]) for one in series]
    x_range = axis_range([value for one in series for value in one.x])
    low, high = axis_range(
        [value for one in series for values in (one.low, one.high, one.y) for value in values]
    )
    y_axis = Axis(title, max(low, bounds[0]), min(high, bounds[1]))
    description = "; ".join(
        f"{one.label} from {one.y[0]:.3g} to {one.y[-1]:.3g} at "
        f"{short_number(float(f'{one.x[-1]:.3g}'))}"
        for one in series
        if len(one.x)
    )
    x_axis = Axis(x_title, *x_range, whole=x == "step")
    return draw_panel(title, x_axis, y_axis, series, description, size)


def pass_at_k_figure(table: pd.DataFrame, styles: Styles) -> Figure | None:
    """Draw pass@k against k, with the base."""
    table = table[table["label"].isin(list(styles))]
    if not len(table):
        return None
    series = [
        line(label, styles, floats(part["k"]), part, ("mean", "low", "high"))
        for label, part in by_label(table)
    ]
    last = int(table["k"].max())
    description = "; ".join(
        f"{one.label} {one.y[0]:.3f} to {one.y[-1]:.3f} at {last}" for one in series
    )
    caption = (
        "Chance that at least one of k programs solves a problem. A steep line gains from more "
        "tries. Where a trained model's line meets the base's, training only made likelier what "
        "the base could already solve. Thin lines: 95 % intervals."
    )
    panel = draw_panel(
        title="pass@k: at least one of k programs is right",
        x=Axis("k, programs per problem", 0.5, last + 0.5, whole=True),
        y=Axis("pass@k", *_share_range(list(table["high"]))),
        series=series,
        description=description,
    )
    labels = {one.label for one in series}
    return Figure("pass_at_k", "More tries", caption, labels, [("", [panel])])


# The figures as files for papers and slides: light colours, with a key, independent of the page.

FOLDER = Path(__file__).parent / "web"
MARGIN, GAP, TITLE, ROW = 14, 20, 24, 22
NARROW, WIDE = 8, 11  # approximate largest width of a letter of the key


def figure_files(
    figure: Figure, styles: Styles, drawn_of: tuple[int, int] | None
) -> dict[str, str]:
    """Return name → SVG, a file for each choice of an axis.

    `drawn_of` has the numbers of drawn and of all groups, if not all are drawn.
    """
    key = {readable(label): style for label, style in styles.items() if label in figure.labels}
    footnote = "{} of {} groups".format(*drawn_of) if drawn_of else ""
    return {
        "_".join([figure.name, *choice.split()]): _figure_file(panels, key, footnote)
        for choice, panels in figure.choices
    }


def _figure_file(panels: Sequence[Panel], key: Styles, footnote: str) -> str:
    """Return the panels, two or three in a row, with the key below."""
    columns = min(2 if panels[0].size == LARGE else 3, len(panels))
    panel_width, panel_height = panels[0].size.width, panels[0].size.height
    width = 2 * MARGIN + columns * panel_width + (columns - 1) * GAP
    width = max(width, *(2 * MARGIN + _key_width(label) for label in key))
    parts = []
    for i, panel in enumerate(panels):
        left = MARGIN + i % columns * (panel_width + GAP)
        top = MARGIN + i // columns * (TITLE + panel_height + GAP)
        parts.append(
            f'<text class="title" x="{left}" y="{top + 14}">{escape(panel.title)}</text>'
            f'<g class="panel{panel.size.kind}" transform="translate({left},{top + TITLE})">'
            f"{panel.body}</g>"
        )
        if panel.note:
            low = top + TITLE + panel_height + 14
            parts.append(f'<text class="note" x="{left}" y="{low}">{escape(panel.note)}</text>')
    top = MARGIN + -(-len(panels) // columns) * (TITLE + panel_height + GAP)
    places, height = _key_places(list(key), width, top)
    for (label, style), (x, y) in zip(key.items(), places, strict=True):
        parts.append(
            f'<g class="swatch {style.colour}" transform="translate({x},{y})">'
            f"{swatch_paths(style)}</g>"
            f'<text x="{x + 40}" y="{y + 11.5}">{escape(label)}</text>'
        )
    if footnote:
        parts.append(f'<text x="{MARGIN}" y="{height + 12}">{footnote}</text>')
        height += ROW
    size = f'width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>'
    paper = f'<rect class="paper" {size}/>'
    style_sheet = f"<style>\n{_light_style_sheet()}</style>"
    return readable("\n".join([head, style_sheet, paper, *parts, "</svg>\n"]))


def _key_places(labels: Sequence[str], width: int, top: int) -> tuple[list[tuple[int, int]], int]:
    """Return the position of each label's key, in rows from `top`, and the end of the last row."""
    places: list[tuple[int, int]] = []
    x = MARGIN
    for label in labels:
        key_width = _key_width(label)
        if x > MARGIN and x + key_width > width - MARGIN:
            x, top = MARGIN, top + ROW
        places.append((x, top))
        x += key_width + GAP
    return places, top + ROW


def _key_width(label: str) -> int:
    return 40 + sum(WIDE if one.isupper() or one > "\x7f" else NARROW for one in label)


def _light_style_sheet() -> str:
    """Return the page's style of figures in light colours, without variables.

    Some programs that read SVG do not know CSS variables.
    """
    page = (FOLDER / "style.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--([\w-]+): ([^;]+);", page[: page.index("}")]))
    figures = (FOLDER / "figures.css").read_text(encoding="utf-8")
    text = (
        "text { font-family: sans-serif; font-size: 13px; fill: var(--ink); }\n"
        ".title { font-size: 14.5px; font-weight: 600; }\n.note { font-size: 11px; }\n"
        ".paper { fill: var(--paper); }\n"
    )
    return re.sub(r"var\(--([\w-]+)\)", lambda name: colours[name[1]], text + figures)


MOST_SMALL_POINTS = 50  # of a line, in a panel of a third of the page's width
MOST_WITH_RANGE = 6  # groups; the edges of more ranges than that hide the lines
TAIL = 0.01  # share of all values, beyond each end of a panel's robust range
FAR = 2.0  # times that range, beyond which a value would flatten the panel
EDGE_ROOM = 0.1  # of that range, beyond its ends


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
    """Return at most MOST_SMALL_POINTS of a line's points."""
    kept = thinned(len(series.x), MOST_SMALL_POINTS)
    x, y, low, high = (
        [values[i] for i in kept] if len(values) else ()
        for values in (series.x, series.y, series.low, series.high)
    )
    return replace(series, x=x, y=y, low=low, high=high)


def robust_bounds(values: np.ndarray, lines: int) -> tuple[float, float]:
    """Return the ends of an axis that few far values do not flatten; else infinite.

    The robust range has 0 and the values between two quantiles. An end is bounded, EDGE_ROOM beyond
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
        high = greatest + EDGE_ROOM * width
    if width > 0 and values.min() < greatest - FAR * width:
        low = least - EDGE_ROOM * width
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
