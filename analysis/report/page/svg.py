"""Panels of the page's figures as SVG: scales, grid, lines with intervals, points with crosses.

Colours come from the page's style by the classes g0 … g5 (or base), so that they follow dark mode.
Each series also has its own marker and dash, so that it can be recognised without colour. Intervals
of lines are drawn as two thin edges: where filled areas overlap, their colours would mix to grey.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

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
