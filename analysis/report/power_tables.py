"""What the design could detect, as tables: of many pairs the few that matter first, then all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd

from analysis.load.run_folders import Contrast
from analysis.metrics.definitions import TITLES
from analysis.report.render import Cells, count, number, records

FEW = 6  # pairs, up to which all are shown at once


class PowerTables(NamedTuple):
    """`first`: a row per pair that matters, without rows if there are few; `every`: all pairs."""

    pairs: int
    first: Cells
    every: Cells


def power_tables(
    table: pd.DataFrame, metrics: Sequence[str], contrasts: Iterable[Contrast]
) -> PowerTables:
    """Return power.csv for these metrics as cells.

    First are the pairs that were named ahead, and for each metric the pairs with the smallest and
    the largest detectable difference.
    """
    if not len(table):
        return PowerTables(0, ([], []), ([], []))
    table = table[table["metric"].isin(metrics)]
    pairs = len(table[["a", "b"]].drop_duplicates())
    first = _first_cells(table, contrasts) if pairs > FEW else ([], [])
    return PowerTables(pairs, first, _all_cells(table))


def _first_cells(table: pd.DataFrame, contrasts: Iterable[Contrast]) -> Cells:
    """Return the detectable difference in each metric of the pairs that matter, and why they do."""
    metrics = list(table["metric"].unique())
    detected = {
        (frozenset((row["a"], row["b"])), row["metric"]): row["smallest_difference"]
        for row in records(table)
    }
    known = {pair for pair, _ in detected}
    reasons: dict[tuple[str, str], list[str]] = {}
    order: dict[frozenset[str], tuple[str, str]] = {}  # a pair → as it was first said
    for one in contrasts:
        if (pair := frozenset((one.a, one.b))) in known and pair not in order:
            order[pair] = (one.a, one.b)
            reasons[order[pair]] = ["named ahead"]
    for metric in metrics:
        part = table[table["metric"] == metric]
        part = part[part["smallest_difference"].map(math.isfinite)].reset_index(drop=True)
        if not len(part):
            continue
        sizes = part["smallest_difference"]
        for place, word in ((sizes.idxmin(), "smallest"), (sizes.idxmax(), "largest")):
            a, b = str(part.loc[place, "a"]), str(part.loc[place, "b"])
            said = order.setdefault(frozenset((a, b)), (a, b))
            reasons.setdefault(said, []).append(f"{word} in {TITLES.get(metric, metric)}")
    rows = [
        [
            f"{said[0]} − {said[1]}",
            *(number(detected.get((pair, metric))) for metric in metrics),
            "; ".join(reasons[said]),
        ]
        for pair, said in order.items()
    ]
    return ["", *(TITLES.get(metric, metric) for metric in metrics), "why it is here"], rows


def _all_cells(table: pd.DataFrame) -> Cells:
    sources = ("seeds", "problems", "interaction", "sampling")
    resources = ("seeds", "samples", "problems")
    target = f"{table['wish'].iloc[0]:g}"
    heading = [
        "",
        "metric",
        "detected in 80 %",
        *(f"{source}, % of variance" for source in sources),
    ]
    heading += [f"{resource} to detect {target}" for resource in resources]
    rows = [
        [
            f"{row['a']} − {row['b']}",
            TITLES.get(row["metric"], row["metric"]),
            number(row["smallest_difference"]),
            *(number(100 * row[f"of_{source}"], 0) for source in sources),
            *(_needed(row[f"{resource}_needed"]) for resource in resources),
        ]
        for row in records(table)
    ]
    return heading, rows


def _needed(needed: float) -> str:
    return "none suffices" if needed == math.inf else count(needed)
