"""The answer in sentences: who is ahead, by how much, how sure that is, and what was too small."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.differences import Pair, tier_table
from analysis.intervals import spread
from analysis.labels import listed
from analysis.metrics import DISTINCT, TITLES
from analysis.power import smallest_difference
from analysis.sections import Section


def headlines(section: Section) -> list[str]:
    """The metrics that the answer is about: the least and the greatest k, and diversity."""
    return list(dict.fromkeys([f"pass@{section.ks[0]}", f"pass@{section.ks[-1]}", DISTINCT]))


def answer(section: Section) -> list[str]:
    """A sentence or three for each headline metric; none with fewer than two groups."""
    if len(section.ends) < 2:
        return []
    if max(one.seeds for one in section.pairs) < 2:
        one = "No two groups share two seeds: a difference between algorithms cannot be told from "
        return [one + "the luck of one training, and no tiers are made."]
    tiers = tier_table(section.ends, section.pairs)
    return [said for metric in headlines(section) if (said := _of_metric(section, tiers, metric))]


def _of_metric(section: Section, tiers: pd.DataFrame, metric: str) -> str:
    pairs = [one for one in section.pairs if one.metric == metric]
    ranked = tiers[tiers["metric"] == metric]
    if len(ranked) < 2:
        return ""
    title = TITLES.get(metric, metric)
    means = {
        stage.label: float(spread(stage.grids[metric].terms()).mean)
        for stage in section.ends
        if metric in stage.grids
    }
    first = list(ranked.loc[ranked["tier"] == 1, "label"])
    rest = list(ranked.loc[ranked["tier"] > 1, "label"])
    shown = listed([f"{label} ({means[label]:.3f})" for label in first])
    if not rest:
        ends = between(pairs, first[0], first[-1])
        said = f"{title}: the data do not separate {shown}. {_difference(ends)}"
    elif len(first) == 1:
        said = f"{title}: {shown} is in the first tier alone. "
        said += _difference(between(pairs, first[0], rest[0]))
    else:
        said = f"{title}: {shown} share the first tier. "
        said += _difference(between(pairs, first[0], first[-1])) + " "
        said += _difference(between(pairs, first[0], rest[0]))
    return f"{said} {_seen(pairs)}".rstrip()


def between(pairs: Sequence[Pair], a: str, b: str) -> Pair:
    """The pair a - b, whichever way it was kept."""
    for one in pairs:
        if (one.a, one.b) == (a, b):
            return one
        if (one.a, one.b) == (b, a):
            return one.turned()
    raise KeyError((a, b))


def _difference(one: Pair) -> str:
    if one.seeds == 0:
        return f"{one.a} and {one.b} share no seed or problem and are not compared."
    found = f"{one.a} − {one.b}: {signed(one)}"
    seeds = f"{one.seeds} seed" + ("s" if one.seeds > 1 else "")
    if one.seeds == 1:
        return f"{found} on {seeds}, without an interval."
    return f"{found}, {seeds}, {one.problems} problems."


def signed(one: Pair) -> str:
    """+0.052 [−0.020, 0.124], as far as it is known."""
    d = one.difference
    if d.mean != d.mean:
        return "–"
    ends = "" if d.low != d.low else f" [{d.low:+.3f}, {d.high:+.3f}]"
    return f"{d.mean:+.3f}{ends}".replace("-", "−")


def _seen(pairs: Sequence[Pair]) -> str:
    """What the design could tell, where some pair was not told apart."""
    blind = [one for one in pairs if not one.apart and one.seeds > 1]
    if not blind:
        return ""
    smallest = [float(smallest_difference(one.spread)) for one in blind]
    low, high = min(smallest), max(smallest)
    if high == 0:
        return ""
    if low >= 1:
        return "No difference, however great, would have been told from 0."
    size = f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {min(high, 1):.2f}"
    return (
        f"Pairs that were not separated may differ all the same: only a true difference of {size} "
        "would have been told from 0 in most such comparisons."
    )


def matrix(section: Section, metric: str) -> tuple[list[str], list[list[str]]]:
    """Heading and rows of row − column; a star where the two are separated."""
    pairs = [one for one in section.pairs if one.metric == metric]
    labels = [stage.label for stage in section.ends if metric in stage.grids]
    rows = []
    for a in labels:
        cells = [a]
        for b in labels:
            if a == b:
                cells.append("")
                continue
            one = between(pairs, a, b)
            cells.append(signed(one) + (" *" if one.apart else ""))
        rows.append(cells)
    return ["row − column", *labels], rows
