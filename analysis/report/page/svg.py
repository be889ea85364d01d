"""Panels of the page's figures as SVG: scales, grid, lines with intervals, points with crosses.

Colours come from the page's style by the class g0 … g5 (or base), so that they follow dark mode;
each series has a marker and a dash of its own beside, so that it can be told without colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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


@dataclass(frozen=True)
class Style:
    """How a group looks in every figure: its number, and what tells it apart without colour."""

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
    """A title, its range, and how its numbers are written."""

    title: str
    low: float
    high: float
    whole: bool = False

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers in the range, at most `most`."""
        width = self.high - self.low
        step = 10 ** math.floor(math.log10(width / most))
        step *= next(m for m in (1, 2, 5, 10, 20) if width / (step * m) <= most)
        if self.whole:
            step = max(1.0, step)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, int(self.high / step + 1e-9) + 1)]


def span(values: Sequence[float], least: float = 0.0, room: float = 0.04) -> tuple[float, float]:
    """From `least` or below to a little above the greatest finite value."""
    finite = [v for v in values if math.isfinite(v)]
    low, high = min([least, *finite]), max([least, *finite])
    return low, (high + room * (high - low)) if high > low else low + 1.0


def short(value: float) -> str:
    """0.25, 12, 300k, 1.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (10 if unit == "k" else 1):
            return f"{value / size:g}{unit}"
    return f"{value:g}"


@dataclass(frozen=True)
class Panel:
    """A drawing WIDTH by HEIGHT; `said` tells in words what it shows, for who cannot see it."""

    title: str
    said: str
    body: str

    @property
    def svg(self) -> str:
        return (
            f'<svg class="panel" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(self.title)}: {escape(self.said)}">{self.body}</svg>'
        )


def panel(title: str, x: Axis, y: Axis, series: Sequence[Series], said: str) -> Panel:
    """The series over a grid, between two axes."""
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(px: float, py: float) -> tuple[float, float]:
        return (
            LEFT + (px - x.low) / (x.high - x.low) * across,
            TOP + up - (py - y.low) / (y.high - y.low) * up,
        )

    parts = []
    for tick in y.ticks():
        height = at(x.low, tick)[1]
        parts.append(f'<path class="grid" d="M{LEFT},{height:.1f}h{across}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 7}" y="{height + 4:.1f}" '
            f'text-anchor="end">{short(tick)}</text>'
        )
    for tick in x.ticks():
        place = at(tick, y.low)[0]
        parts.append(f'<path class="grid" d="M{place:.1f},{TOP}v{up}"/>')
        parts.append(
            f'<text class="tick" x="{place:.1f}" y="{TOP + up + 17}" '
            f'text-anchor="middle">{short(tick)}</text>'
        )
    parts.append(f'<path class="axis" d="M{LEFT},{TOP}v{up}h{across}"/>')
    parts.append(
        f'<text class="axis-title" x="{LEFT + across / 2}" y="{HEIGHT - 8}" '
        f'text-anchor="middle">{escape(x.title)}</text>'
    )
    parts += [_drawn(one, at) for one in series]
    return Panel(title, said, "".join(parts))


def _drawn(one: Series, at) -> str:  # type: ignore[no-untyped-def]
    """A series: band, line, crosses and markers, each point with its numbers as a tooltip."""
    known = [i for i, (px, py) in enumerate(zip(one.x, one.y, strict=True)) if _finite(px, py)]
    points = [at(one.x[i], one.y[i]) for i in known]
    parts = [f'<g class="series {one.style.colour}" data-group="{escape(one.label)}">']
    crosses = len(one.x_low) > 0
    if len(one.low) and not crosses:
        edge = [i for i in known if _finite(one.low[i], one.high[i])]
        if len(edge) > 1:
            way = [at(one.x[i], one.high[i]) for i in edge]
            way += [at(one.x[i], one.low[i]) for i in reversed(edge)]
            parts.append(f'<path class="band" d="{_path(way)}z"/>')
    if len(points) > 1:
        dash = f' stroke-dasharray="{one.style.dash}"' if one.style.dash else ""
        parts.append(f'<path class="line" d="{_path(points)}"{dash}/>')
    for i, (px, py) in zip(known, points, strict=True):
        if not one.markers and len(points) > 1:
            break
        if crosses and _finite(one.low[i], one.x_low[i]):
            ends = (at(one.x_low[i], one.y[i]), at(one.x_high[i], one.y[i]))
            parts.append(f'<path class="bar" d="{_path(ends)}"/>')
            ends = (at(one.x[i], one.low[i]), at(one.x[i], one.high[i]))
            parts.append(f'<path class="bar" d="{_path(ends)}"/>')
        told = f"{one.label}: {one.y[i]:.3f}"
        if len(one.low) and _finite(one.low[i], one.high[i]):
            told += f" [{one.low[i]:.3f}, {one.high[i]:.3f}]"
        told += f" at {short(float(f'{one.x[i]:.4g}'))}"
        parts.append(
            f'<path class="marker" d="{one.style.marker}" transform="translate({px:.1f},{py:.1f})">'
            f"<title>{escape(told)}</title></path>"
        )
    return "".join([*parts, "</g>"])


def swatch(style: Style) -> str:
    """The line and marker of a group, for keys and tables."""
    return (
        f'<svg class="swatch {style.colour}" viewBox="0 0 34 14" aria-hidden="true">'
        f"{key(style)}</svg>"
    )


def key(style: Style) -> str:
    """34 wide and 14 high."""
    dash = f' stroke-dasharray="{style.dash}"' if style.dash else ""
    return (
        f'<path class="line" d="M1,7h32"{dash}/>'
        f'<path class="marker" d="{style.marker}" transform="translate(17,7)"/>'
    )


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _finite(*values: float) -> bool:
    return all(math.isfinite(value) for value in values)
