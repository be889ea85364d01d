"""The report's figures: learning curves, pass@k, diversity. One look, safe for the colour-blind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")  # before pyplot: no display is needed, nor looked for
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import EngFormatter, MaxNLocator

from analysis.metrics import METRIC

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
    "generated_tokens": "generated tokens",
    "wall_time": "wall time in minutes",
}
DIVERSITY = ("distinct_of_5", "edit_distance", "distinct_2", "token_entropy")

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


def styles(labels: Sequence[str]) -> dict[str, dict[str, str]]:
    """Line style of each label, the same in every figure; labels beginning with "base" are grey."""
    chosen: dict[str, dict[str, str]] = {}
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
    rewards: pd.DataFrame, evaluations: pd.DataFrame, x: str, window: int
) -> Figure | None:
    """Training reward and evaluated pass@1 against `x`; None where `x` was not recorded."""
    rewards, evaluations = rewards.dropna(subset=[x]), evaluations.dropna(subset=[x])
    if not len(rewards) or not len(evaluations):
        return None
    # A range over one seed is a line, and needs no words.
    spread = ", range over seeds" if evaluations["seeds"].max() > 1 else ""
    smooth = f"mean of {window} steps" if window > 1 else "each step"
    style = styles(sorted({*rewards["label"], *evaluations["label"]}))
    with _figure(1, 2, (10, 4.2)) as (figure, (left, right)):
        for label, curve in rewards.groupby("label"):
            at = _scaled(curve[x], x)
            line = {key: style[label][key] for key in ("color", "linestyle")}
            left.plot(at, curve["mean"], label=label, **line)
            left.fill_between(at, curve["low"], curve["high"], color=line["color"], alpha=0.15)
        for label, curve in evaluations.groupby("label"):
            at = _scaled(curve[x], x)
            right.plot(at, curve["mean"], label=label, **style[label])
            right.fill_between(
                at, curve["low"], curve["high"], color=style[label]["color"], alpha=0.15
            )
        left.set_title(f"Training reward ({smooth}{spread})")
        right.set_title("Evaluation pass@1 (95 % interval)")
        for axes in (left, right):
            axes.set_xlabel(X_TITLES[x])
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=x == "step"))
            if x == "generated_tokens":
                axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        _from_zero(right)
        _legend(figure, right)
    return figure


def pass_at_k_curves(table: pd.DataFrame) -> Figure | None:
    """pass@k against k, before and after training; None where there is nothing to draw."""
    if not len(table):
        return None
    labels = list(dict.fromkeys(table["label"]))
    style = styles(labels)
    with _figure(1, 1, (6.4, 4.4)) as (figure, (axes,)):
        for label in labels:
            curve = table[table["label"] == label]
            axes.plot(curve["k"], curve["mean"], label=label, **style[label])
            axes.fill_between(
                curve["k"], curve["low"], curve["high"], color=style[label]["color"], alpha=0.12
            )
        axes.set_title("pass@k (95 % interval)")
        axes.set_xlabel("k, samples per problem")
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        _from_zero(axes)
        _legend(figure, axes)
    return figure


def diversity_dots(results: pd.DataFrame) -> Figure | None:
    """The diversity metrics that were measured, one panel each, a row per model."""
    names = [name for name in DIVERSITY if results[name].notna().any()]
    if not names:
        return None
    labels = list(results["label"])
    style = styles(labels)
    size = (2.7 * len(names) + 1.2, 1.3 + 0.34 * len(labels))
    with _figure(1, len(names), size, sharey=True) as (figure, panels):
        rows = np.arange(len(labels))[::-1]
        for axes, name in zip(panels, names, strict=True):
            for row, (_, result) in zip(rows, results.iterrows(), strict=True):
                look = style[result["label"]]
                low, high = result[f"{name}_low"], result[f"{name}_high"]
                axes.hlines(row, low, high, color=look["color"], linewidth=2)
                axes.plot(result[name], row, color=look["color"], marker=look["marker"])
            unit = " (nats)" if name == "token_entropy" else ""
            axes.set_title(METRIC[name].title + unit)
            axes.set_ylim(-0.6, len(labels) - 0.4)
            axes.set_xlim(0, 1 if name in ("distinct_of_5", "edit_distance") else None)
            axes.grid(axis="y", visible=False)
            axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        panels[0].set_yticks(rows, labels)
    return figure


def save(figure: Figure, path: Path) -> list[Path]:
    """Write `path` as .png and .svg, close the figure, return the two paths."""
    paths = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    with matplotlib.rc_context(LOOK):
        figure.savefig(paths[0])
        figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


@contextmanager
def _figure(
    rows: int, columns: int, size: tuple[float, float], sharey: bool = False
) -> Iterator[tuple[Figure, list[Axes]]]:
    with matplotlib.rc_context(LOOK):
        figure, axes = plt.subplots(
            rows, columns, figsize=size, layout="constrained", squeeze=False, sharey=sharey
        )
        yield figure, list(axes.flat)


def _scaled(values: pd.Series, x: str) -> pd.Series:
    return values / 60 if x == "wall_time" else values


def _from_zero(axes: Axes) -> None:
    axes.set_ylim(0, max(min(1.0, axes.get_ylim()[1]), 0.05))


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    # Long labels, which show settings, need a row each.
    columns = max(1, min(len(labels), int(100 / (max(map(len, labels)) + 8))))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
