"""The page's figures: their panels, axes and captions, on the page and as files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

import pandas as pd

from analysis.metrics.definitions import DISTINCT, TITLES
from analysis.report.page.svg import (
    LARGE,
    Axis,
    Panel,
    Series,
    Size,
    Style,
    axis_range,
    draw_panel,
    short_number,
    swatch_paths,
)
from analysis.report.render import Row, missing, records
from analysis.report.units import fitting_unit
from analysis.stats.training_curves import thinned
from envs.readable import readable

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

FOLDER = Path(__file__).parent
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
