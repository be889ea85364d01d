"""The page's figures: what is drawn, against what, and what is said of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.load.run_folders import readable
from analysis.metrics.definitions import DISTINCT, TITLES
from analysis.report.page.svg import (
    HEIGHT,
    WIDTH,
    Axis,
    Panel,
    Series,
    Style,
    key,
    panel,
    short,
    span,
)

MOST_DRAWN = 12  # groups; more lines than that cannot be told apart
MOST_POINTS = 120  # of a line; a longer one is thinned evenly
AXES = {
    "step": "training steps",
    "generated_tokens": "tokens written in training",
    "judged_programs": "programs judged in training",
    "wall_time": "wall time in minutes, without evaluations",
    "kl_ref": "distance from the base: KL in nats per response",
}
SHORT_AXES = {
    "step": "steps",
    "generated_tokens": "tokens",
    "judged_programs": "judged programs",
    "wall_time": "wall time",
    "kl_ref": "distance from the base",
}
REWARD = "training reward"
Styles = dict[str, Style]


@dataclass(frozen=True)
class Figure:
    """A figure: its caption, whom it shows, and its panels for each choice of an axis, if any."""

    name: str
    title: str
    caption: str
    labels: set[str]
    choices: list[tuple[str, list[Panel]]]


def styles(labels: Iterable[str], bases: Iterable[str]) -> Styles:
    """How each label is drawn, in all figures of a section."""
    bases = set(bases)
    groups = [label for label in labels if label not in bases]
    return {label: Style(i) for i, label in enumerate(groups)} | {
        label: Style(i, base=True) for i, label in enumerate(sorted(bases))
    }


def drawn(results: pd.DataFrame, ks: Sequence[int]) -> list[str]:
    """The labels that are drawn: bases, and of many groups the MOST_DRAWN with the best pass@k."""
    bases = list(results.loc[results["step"] == 0, "label"])[:3]
    ends = results[results["step"] > 0]
    best = set(ends.nlargest(MOST_DRAWN, f"pass@{ks[0]}")["label"])
    return bases + [label for label in ends["label"] if label in best]


def headline(results: pd.DataFrame, ks: Sequence[int], style: Styles) -> Figure | None:
    """pass@1 against pass@10 and against diversity, a point for each group."""
    x = f"pass@{ks[0]}"
    others = [name for name in (f"pass@{ks[-1]}", DISTINCT) if name != x]
    rows = results[results["label"].isin(list(style))].to_dict("records")
    panels = [panel_of(rows, x, y, style) for y in others if any(r[y] == r[y] for r in rows)]
    if not panels:
        return None
    caption = (
        "One point for each group at the end of training, and for the base, the model before it. "
        "Right is better in one try, up is better in several tries, or more different right "
        "programs. The bars are 95 % intervals."
    )
    labels = {r["label"] for r in rows if r[x] == r[x] and any(r[y] == r[y] for y in others)}
    return Figure("headline", "At a glance", caption, labels, [("", panels)])


def panel_of(rows: Sequence[dict], x: str, y: str, style: Styles) -> Panel:
    """Groups as points with intervals along both axes."""
    series = [
        Series(
            row["label"],
            style[row["label"]],
            *([row[name]] for name in (x, y, f"{y}_low", f"{y}_high", f"{x}_low", f"{x}_high")),
        )
        for row in rows
        if row[x] == row[x] and row[y] == row[y]
    ]
    ends = [[row[f"{name}_high"] for row in rows] for name in (x, y)]
    axes = [Axis(_title(name), *_share(high)) for name, high in zip((x, y), ends, strict=True)]
    said = "; ".join(f"{one.label} {one.x[0]:.3f}, {one.y[0]:.3f}" for one in series)
    return panel(f"{_title(y)} against {_title(x)}", *axes, series, said)


def _share(values: Sequence[float]) -> tuple[float, float]:
    """An axis of shares: from 0, and not beyond 1 but by a hair."""
    low, high = span(values)
    return low, min(high, 1.02)


def _title(metric: str) -> str:
    return TITLES.get(metric, metric)


def learning(
    rewards: pd.DataFrame, curve: pd.DataFrame, metrics: Sequence[str], style: Styles, window: int
) -> Figure | None:
    """Reward and evaluations on the way, against each axis that was recorded."""
    known = [label for label in style if label in set(curve["label"])]
    curve = curve[curve["label"].isin(known)]
    rewards = rewards[rewards["label"].isin(known)]
    choices = []
    for x in AXES:
        there = curve.dropna(subset=[x])
        if not (there["step"] > 0).any():
            continue
        panels = [
            _way(there, x, metric, style) for metric in metrics if there[metric].notna().any()
        ]
        if x in rewards and rewards[x].notna().any():
            panels.insert(0, _reward(rewards.dropna(subset=[x]), x, style, window))
        choices.append((SHORT_AXES[x], panels))
    if not choices:
        return None
    caption = (
        "The way from the base (left) to the end of training. Choose what it is measured against: "
        "two algorithms that took equally many steps may have spent very different amounts. "
        "Shaded: 95 % intervals; of the reward, which is what training itself saw, the range over "
        "seeds. Tokens and programs include those that an algorithm asked of the base model."
    )
    return Figure("learning", "On the way", caption, set(known), choices)


def _scale(values: pd.Series, x: str) -> np.ndarray:
    return values.to_numpy(float) / (60 if x == "wall_time" else 1)


def _way(curve: pd.DataFrame, x: str, metric: str, style: Styles) -> Panel:
    series = [
        Series(
            label,
            style[label],
            _scale(part[x], x),
            *(part[f"{metric}{end}"].to_numpy(float) for end in ("", "_low", "_high")),
        )
        for label, part in curve.groupby("label", sort=False)
    ]
    return _lines(_title(metric), x, series)


def _reward(rewards: pd.DataFrame, x: str, style: Styles, window: int) -> Panel:
    series = []
    for label, whole in rewards.groupby("label", sort=False):
        part = whole.iloc[np.unique(np.linspace(0, len(whole) - 1, MOST_POINTS).astype(int))]
        values = (part[name].to_numpy(float) for name in ("mean", "low", "high"))
        series.append(Series(label, style[label], _scale(part[x], x), *values, markers=False))
    smooth = f", mean of {window} steps" if window > 1 else ""
    return _lines(f"{REWARD}{smooth}", x, series)


def _lines(title: str, x: str, series: Sequence[Series]) -> Panel:
    along = Axis(AXES[x], *span([v for one in series for v in one.x]), whole=x == "step")
    low, high = span([v for one in series for part in (one.low, one.high, one.y) for v in part])
    up = Axis(title, low, min(high, 1.02) if title != REWARD else high)
    said = "; ".join(
        f"{one.label} from {one.y[0]:.3f} to {one.y[-1]:.3f} at {short(float(f'{one.x[-1]:.3g}'))}"
        for one in series
        if len(one.x)
    )
    return panel(title, along, up, series, said)


def pass_at_k(table: pd.DataFrame, style: Styles) -> Figure | None:
    """pass@k against k, with the base."""
    table = table[table["label"].isin(list(style))]
    if not len(table):
        return None
    series = [
        Series(
            label, style[label], *(part[c].to_numpy(float) for c in ("k", "mean", "low", "high"))
        )
        for label, part in table.groupby("label", sort=False)
    ]
    last = int(table["k"].max())
    title = "pass@k: at least one of k programs is right"
    up = Axis("pass@k", *_share(list(table["high"])))
    said = "; ".join(f"{one.label} {one.y[0]:.3f} to {one.y[-1]:.3f} at {last}" for one in series)
    along = Axis("k, programs per problem", 0.5, last + 0.5, True)
    caption = (
        "How often at least one of k programs solves a problem. A steep line gains from more "
        "tries; where a trained model's line meets the base's, training only moved what the base "
        "could already do to the front. Shaded: 95 % intervals."
    )
    panels = [panel(title, along, up, series, said)]
    return Figure("pass_at_k", "More tries", caption, {one.label for one in series}, [("", panels)])


# The page's figures as files for papers and slides: light, with a key, whole without the page.


FOLDER = Path(__file__).parent
MARGIN, GAP, TITLE, ROW = 14, 20, 24, 22
NARROW, WIDE = 8, 11  # the most that a letter of the key takes, or nearly


def files(figure: Figure, style: Styles, undrawn: tuple[int, int] | None) -> dict[str, str]:
    """Name → SVG, a file for each axis that the figure may be drawn against.

    `undrawn`: how many groups are drawn of how many, where that is not all.
    """
    shown = {readable(label): one for label, one in style.items() if label in figure.labels}
    said = "{} of {} groups".format(*undrawn) if undrawn else ""
    return {
        "_".join([figure.name, *choice.split()]): _file(panels, shown, said)
        for choice, panels in figure.choices
    }


def _file(panels: Sequence[Panel], style: Styles, said: str) -> str:
    """Two panels in a row, and the key below."""
    columns = min(2, len(panels))
    width = 2 * MARGIN + columns * WIDTH + (columns - 1) * GAP
    width = max(width, *(2 * MARGIN + _key_width(label) for label in style))
    parts = []
    for i, drawn in enumerate(panels):
        left = MARGIN + i % columns * (WIDTH + GAP)
        top = MARGIN + i // columns * (TITLE + HEIGHT + GAP)
        parts.append(
            f'<text class="title" x="{left}" y="{top + 14}">{escape(drawn.title)}</text>'
            f'<g class="panel" transform="translate({left},{top + TITLE})">{drawn.body}</g>'
        )
    top = MARGIN + -(-len(panels) // columns) * (TITLE + HEIGHT + GAP)
    places, height = _places(list(style), width, top)
    for (label, one), (x, y) in zip(style.items(), places, strict=True):
        parts.append(
            f'<g class="swatch {one.colour}" transform="translate({x},{y})">{key(one)}</g>'
            f'<text x="{x + 40}" y="{y + 11.5}">{escape(label)}</text>'
        )
    if said:
        parts.append(f'<text x="{MARGIN}" y="{height + 12}">{said}</text>')
        height += ROW
    size = f'width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>'
    paper = f'<rect class="paper" {size}/>'
    return readable("\n".join([head, f"<style>\n{_light()}</style>", paper, *parts, "</svg>\n"]))


def _places(labels: Sequence[str], width: int, top: int) -> tuple[list[tuple[int, int]], int]:
    """Where each label's key begins, in rows from `top`; and where the last row ends."""
    places: list[tuple[int, int]] = []
    x = MARGIN
    for label in labels:
        takes = _key_width(label)
        if x > MARGIN and x + takes > width - MARGIN:
            x, top = MARGIN, top + ROW
        places.append((x, top))
        x += takes + GAP
    return places, top + ROW


def _key_width(label: str) -> int:
    return 40 + sum(WIDE if one.isupper() or one > "\x7f" else NARROW for one in label)


def _light() -> str:
    """The page's style of figures in its light colours, each written out: some programs that read
    SVG know no variables."""
    page = (FOLDER / "style.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--([\w-]+): ([^;]+);", page[: page.index("}")]))
    drawn = (FOLDER / "figures.css").read_text(encoding="utf-8")
    own = (
        "text { font-family: sans-serif; font-size: 13px; fill: var(--ink); }\n"
        ".title { font-size: 14.5px; font-weight: 600; }\n.paper { fill: var(--paper); }\n"
    )
    return re.sub(r"var\(--([\w-]+)\)", lambda name: colours[name[1]], own + drawn)
