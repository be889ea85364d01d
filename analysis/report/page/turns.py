"""The section "Turn by turn": tables of conversations and their solve rate during training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from analysis.metrics.definitions import Metric
from analysis.report.page.figures import (
    AXIS_CHOICES,
    Figure,
    Styles,
    by_label,
    floats,
    line,
    line_panel,
)
from analysis.report.page.svg import Panel
from analysis.report.render import NOTHING, Cells, Row, ends, number, records
from analysis.stats.curves import X_AXES
from analysis.turns.scores import SHARES, TurnPlan, solve_metrics


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
