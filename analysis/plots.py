"""The report's figures: learning curves, pass@k, diversity. One look, safe for the colour-blind."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")  # before pyplot: no display is needed, nor looked for
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.ticker import EngFormatter, MaxNLocator

from analysis.metrics import DISTINCT, TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, without the yellow that is too pale for lines and the black of the base.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", ":", "-.")
BASE_COLOUR = "#444444"

X_TITLES = {
    "step": "optimiser steps",
    "generated_tokens": "generated tokens, the reference's included",
    "judged_programs": "judged programs, the reference's included",
    "wall_time": "wall time in minutes, without evaluations",
}
DIVERSITY = (DISTINCT, "edit_distance", "distinct_2", "token_entropy")

LOOK = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "figure.dpi": 150,
    "svg.hashsalt": "spo-bench",  # the same data give the same bytes
}


Styles = dict[str, dict[str, str]]


def styles(labels: Iterable[str]) -> Styles:
    """The line of each label, for all figures of a report; those of the bases are grey."""
    chosen: Styles = {}
    number = 0
    for label in labels:
        if is_base(label):
            chosen[label] = {"color": BASE_COLOUR, "marker": "x", "linestyle": "--"}
            continue
        turn = number // len(COLOURS)
        chosen[label] = {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKERS[(number + turn) % len(MARKERS)],
            "linestyle": DASHES[turn % len(DASHES)],
        }
        number += 1
    return chosen


def is_base(label: str) -> bool:
    return label == "base" or label.startswith("base ")


def learning_curves(
    rewards: pd.DataFrame, evaluations: pd.DataFrame, x: str, window: int, style: Styles
) -> Figure | None:
    """Training reward and evaluated pass@1 against `x`; None where `x` was not recorded.

    `window` is the number of steps over which the rewards were smoothed.
    """
    rewards, evaluations = rewards.dropna(subset=[x]), evaluations.dropna(subset=[x])
    if not len(rewards) or not len(evaluations):
        return None
    # A range over one seed is a line, and needs no words.
    spread = ", range over seeds" if evaluations["seeds"].max() > 1 else ""
    smooth = f"mean of {window} steps" if window > 1 else "each step"
    with _figure(2, (10, 3.8), evaluations["label"].unique()) as (figure, (left, right)):
        for label, curve in rewards.groupby("label"):
            at = _scaled(curve[x], x)
            line = {key: style[label][key] for key in ("color", "linestyle")}
            left.plot(at, curve["mean"], label=label, **line)
            left.fill_between(at, curve["low"], curve["high"], color=line["color"], alpha=0.15)
        for label, curve in evaluations.groupby("label"):
            values = curve[["pass@1", "pass@1_low", "pass@1_high"]]
            _with_interval(right, _scaled(curve[x], x), values, style[label], label)
        left.set_title(f"Training reward ({smooth}{spread})")
        right.set_title("Evaluation pass@1 (95 % interval)")
        for axes in (left, right):
            axes.set_xlabel(X_TITLES[x])
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=x == "step"))
            if x in ("generated_tokens", "judged_programs"):
                axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        _from_zero(right)
        _legend(figure, right)
    return figure


def pass_at_k_curves(table: pd.DataFrame, style: Styles) -> Figure | None:
    """pass@k against k, before and after training; None where there is nothing to draw."""
    if not len(table):
        return None
    labels = list(dict.fromkeys(table["label"]))
    with _figure(1, (7, 4), labels) as (figure, (axes,)):
        for label in labels:
            curve = table[table["label"] == label]
            values = curve[["mean", "low", "high"]]
            _with_interval(axes, curve["k"], values, style[label], label)
        axes.set_title("pass@k (95 % interval)")
        axes.set_xlabel("k, samples per problem")
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        _from_zero(axes)
        _legend(figure, axes)
    return figure


def kl_curves(evaluations: pd.DataFrame, style: Styles) -> Figure | None:
    """pass@1 and diversity against the KL to the reference; None where it was not recorded.

    The way begins at the base, at 0: an algorithm whose line lies above another's buys more with
    the same distance from the base, whatever its coefficient of regularisation.
    """
    evaluations = evaluations.dropna(subset=["kl_ref"])
    if not (evaluations["step"] > 0).any():
        return None
    labels = evaluations["label"].unique()
    with _figure(2, (10, 3.8), labels) as (figure, panels):
        for axes, metric in zip(panels, ("pass@1", DISTINCT), strict=True):
            for label, curve in evaluations.dropna(subset=[metric]).groupby("label"):
                values = curve[[metric, f"{metric}_low", f"{metric}_high"]]
                _with_interval(axes, curve["kl_ref"], values, style[label], label)
            axes.set_title(f"{TITLES.get(metric, metric)} (95 % interval)")
            axes.set_xlabel("KL to the reference, nats per response")
            _from_zero(axes)
        _legend(figure, panels[0])
    return figure


def diversity_dots(results: pd.DataFrame, style: Styles) -> Figure | None:
    """The diversity metrics that were measured, one panel each, a row per model."""
    names = [name for name in DIVERSITY if results[name].notna().any()]
    if not names:
        return None
    labels = list(results["label"])
    size = (9.4 + 0.06 * max(map(len, labels)), 1 + 0.34 * len(labels))
    with _figure(len(names), size, (), sharey=True) as (figure, panels):
        rows = np.arange(len(labels))[::-1]
        for axes, name in zip(panels, names, strict=True):
            for row, (_, result) in zip(rows, results.iterrows(), strict=True):
                look = style[result["label"]]
                low, high = result[f"{name}_low"], result[f"{name}_high"]
                axes.hlines(row, low, high, color=look["color"], linewidth=2)
                axes.plot(result[name], row, color=look["color"], marker=look["marker"])
            unit = " (nats)" if name == "token_entropy" else ""
            axes.set_title(TITLES[name] + unit)
            axes.set_ylim(-0.6, len(labels) - 0.4)
            right = 1.0 if name in (DISTINCT, "edit_distance") else 1.08 * _greatest(results, name)
            axes.set_xlim(0, right or None)
            axes.grid(axis="y", visible=False)
            axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        panels[0].set_yticks(rows, labels)
    return figure


def _greatest(results: pd.DataFrame, name: str) -> float:
    return float(results[[name, f"{name}_high"]].max(axis=None))


def save(figure: Figure, path: Path) -> list[Path]:
    """Write `path` as .png and .svg, close the figure, return the two paths."""
    paths = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    with matplotlib.rc_context(LOOK):
        # Not by `savefig`, which draws everything twice: once only to settle the layout.
        FigureCanvasAgg(figure).print_png(paths[0])
        figure.set_layout_engine("none")  # it is settled, and slow to find again
        FigureCanvasSVG(figure).print_svg(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


@contextmanager
def _figure(
    panels: int, size: tuple[float, float], legend: Collection[str], sharey: bool = False
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A row of panels `size` inches wide and high, and below it room for these labels."""
    width, height = size
    height += 0.22 * math.ceil(len(legend) / _legend_columns(legend, width)) if legend else 0
    with matplotlib.rc_context(LOOK):
        figure, axes = plt.subplots(
            1, panels, figsize=(width, height), layout="constrained", squeeze=False, sharey=sharey
        )
        yield figure, list(axes.flat)


def _with_interval(
    axes: Axes, at: pd.Series, values: pd.DataFrame, look: dict[str, str], label: str
) -> None:
    """A line of the first of three columns, within the other two."""
    mean, low, high = (values.iloc[:, i] for i in range(3))
    axes.plot(at, mean, label=label, **look)
    axes.fill_between(at, low, high, color=look["color"], alpha=0.13, linewidth=0)


def _scaled(values: pd.Series, x: str) -> pd.Series:
    return values / 60 if x == "wall_time" else values


def _from_zero(axes: Axes) -> None:
    axes.set_ylim(0, max(min(1.0, axes.get_ylim()[1]), 0.05))


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = _legend_columns(labels, figure.get_figwidth())
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def _legend_columns(labels: Collection[str], width: float) -> int:
    """As many as fit into `width` inches: long labels, which show settings, need a row each."""
    return max(1, min(len(labels), int(width * 11 / (max(map(len, labels)) + 8))))
