"""Compact letter display: groups that share a letter are not separated (Piepho 2004, J. Comput.
Graph. Stat. 13).

Tiers end only where every group above is separated from every group below, so that many groups
often make a single tier. Letters show each separation: two groups are separated if and only if they
share none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from string import ascii_lowercase

import pandas as pd

from analysis.metrics.evaluated_models import ScoredGroup
from analysis.stats.differences import PairedDifference, mean_score


def letter_table(
    groups: Sequence[ScoredGroup], differences: Sequence[PairedDifference]
) -> pd.DataFrame:
    """Return letters.csv: label, metric, mean, letters, best first in each metric.

    A group on which the metric was not measured has no row. A metric without any test, as with one
    seed, has none.
    """
    rows = []
    for metric in dict.fromkeys(difference.metric for difference in differences):
        pairs = [pair for pair in differences if pair.metric == metric]
        if not any(pair.adjusted_p == pair.adjusted_p for pair in pairs):
            continue
        means = {g.label: mean_score(g, metric) for g in groups if metric in g.grids}
        order = sorted((x for x in means if means[x] == means[x]), key=lambda x: -means[x])
        shown = letters(order, [(pair.a, pair.b) for pair in pairs if pair.separated])
        rows += [(label, metric, means[label], shown[label]) for label in order]
    return pd.DataFrame(rows, columns=["label", "metric", "mean", "letters"])


def letters(order: Sequence[str], separated: Collection[tuple[str, str]]) -> dict[str, str]:
    """Return label → letters, "a" for the first of `order`; `separated` are pairs of labels.

    Insert and absorb: all begin with one letter. A separated pair that shares a letter splits it in
    two, one without each of the pair; a letter whose groups all share another one is dropped.
    """
    shared = [frozenset(order)]
    for a, b in separated:
        split: list[frozenset[str]] = []
        for members in shared:
            split += [members - {a}, members - {b}] if {a, b} <= members else [members]
        distinct = list(dict.fromkeys(split))
        shared = [one for one in distinct if not any(one < other for other in distinct)]
    place = {label: i for i, label in enumerate(order)}
    shared.sort(key=lambda members: sorted(place[label] for label in members))
    names = dict(zip(shared, _names(len(shared)), strict=True))
    return {label: "".join(names[m] for m in shared if label in m) for label in order}


def _names(count: int) -> list[str]:
    """Return a, b, … z, a2, b2, …"""
    rounds = range(1, count // len(ascii_lowercase) + 2)
    names = [letter + (str(n) if n > 1 else "") for n in rounds for letter in ascii_lowercase]
    return names[:count]
