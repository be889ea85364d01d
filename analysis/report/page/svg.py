"""Panels of the page's figures as SVG: scales, grid, lines with intervals, points with crosses.

Colours come from the page's style by the classes g0 … g5 (or base), so that they follow dark mode.
Each series also has its own marker and dash, so that it can be recognised without colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 10, 44
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
    "cross": "M-4.6,-3L-3,-4.6L0,-1.6L3,-4.6L4.6,-3L1.6,0L4.6,3L3,4.6L0,1.6L-3,4.6L-4.6,3L-1.6,0z",
}
Point = tuple[float, float]


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
    """A drawing WIDTH by HEIGHT; `description` tells screen readers what it shows."""

    title: str
    description: str
    body: str

    @property
    def svg(self) -> str:
        return (
            f'<svg class="panel" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(self.title)}: {escape(self.description)}">{self.body}</svg>'
        )


def draw_panel(title: str, x: Axis, y: Axis, series: Sequence[Series], description: str) -> Panel:
    """Draw the series over a grid, between two axes."""
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def pixel(px: float, py: float) -> Point:
        return (
            LEFT + (px - x.low) / (x.high - x.low) * width,
            TOP + height - (py - y.low) / (y.high - y.low) * height,
        )

    parts = []
    for tick in y.ticks():
        top = pixel(x.low, tick)[1]
        parts.append(f'<path class="grid" d="M{LEFT},{top:.1f}h{width}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 7}" y="{top + 4:.1f}" '
            f'text-anchor="end">{short_number(tick)}</text>'
        )
    for tick in x.ticks():
        left = pixel(tick, y.low)[0]
        parts.append(f'<path class="grid" d="M{left:.1f},{TOP}v{height}"/>')
        parts.append(
            f'<text class="tick" x="{left:.1f}" y="{TOP + height + 17}" '
            f'text-anchor="middle">{short_number(tick)}</text>'
        )
    parts.append(f'<path class="axis" d="M{LEFT},{TOP}v{height}h{width}"/>')
    parts.append(
        f'<text class="axis-title" x="{LEFT + width / 2}" y="{HEIGHT - 8}" '
        f'text-anchor="middle">{escape(x.title)}</text>'
    )
    parts += [_draw_series(one, pixel) for one in series]
    return Panel(title, description, "".join(parts))


def _draw_series(series: Series, pixel: Callable[[float, float], Point]) -> str:
    """Draw band, line, crosses and markers, each marker with its numbers as a tooltip."""
    finite = [
        i for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)) if _all_finite(x, y)
    ]
    points = [pixel(series.x[i], series.y[i]) for i in finite]
    parts = [f'<g class="series {series.style.colour}" data-group="{escape(series.label)}">']
    crosses = len(series.x_low) > 0
    if len(series.low) and not crosses:
        parts += _draw_band(series, finite, pixel)
    if len(points) > 1:
        parts.append(f'<path class="line" d="{_path(points)}"{series.style.dash_attribute}/>')
    if series.markers or len(points) <= 1:
        for i, point in zip(finite, points, strict=True):
            if crosses and _all_finite(series.low[i], series.x_low[i]):
                x, y = series.x[i], series.y[i]
                across = pixel(series.x_low[i], y), pixel(series.x_high[i], y)
                along = pixel(x, series.low[i]), pixel(x, series.high[i])
                parts += [f'<path class="bar" d="{_path(bar)}"/>' for bar in (across, along)]
            parts.append(_draw_marker(series, i, point))
    return "".join([*parts, "</g>"])


def _draw_band(
    series: Series, finite: Sequence[int], pixel: Callable[[float, float], Point]
) -> list[str]:
    known = [i for i in finite if _all_finite(series.low[i], series.high[i])]
    if len(known) <= 1:
        return []
    outline = [pixel(series.x[i], series.high[i]) for i in known]
    outline += [pixel(series.x[i], series.low[i]) for i in reversed(known)]
    return [f'<path class="band" d="{_path(outline)}z"/>']


def _draw_marker(series: Series, i: int, point: Point) -> str:
    tooltip = f"{series.label}: {series.y[i]:.3f}"
    if len(series.low) and _all_finite(series.low[i], series.high[i]):
        tooltip += f" [{series.low[i]:.3f}, {series.high[i]:.3f}]"
    tooltip += f" at {short_number(float(f'{series.x[i]:.4g}'))}"
    place = f'transform="translate({point[0]:.1f},{point[1]:.1f})"'
    return (
        f'<path class="marker" d="{series.style.marker}" {place}>'
        f"<title>{escape(tooltip)}</title></path>"
    )


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
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _all_finite(*values: float) -> bool:
    return all(math.isfinite(value) for value in values)
