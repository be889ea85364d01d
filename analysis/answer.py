"""The answer in sentences: who is ahead, by how much, how sure that is, and what was too small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from analysis.differences import Pair, tier_table
from analysis.intervals import spread
from analysis.labels import listed
from analysis.metrics import DISTINCT, TITLES
from analysis.power import smallest_difference
from analysis.sections import Section
from analysis.stages import Stage

MOST_SAID = 4  # sentences on who is above whom; the matrix has all


def headlines(section: Section) -> list[str]:
    """The metrics that the answer is about: the least and the greatest k, and diversity."""
    return list(dict.fromkeys([f"pass@{section.ks[0]}", f"pass@{section.ks[-1]}", DISTINCT]))


def answer(section: Section) -> list[str]:
    """A few sentences for each headline metric; with one group, how far it came from the base."""
    if not section.ends:
        return []
    if len(section.ends) == 1:
        return _alone(section)
    if max(one.seeds for one in section.pairs) < 2:
        one = "No two groups share two seeds: a difference between algorithms cannot be told from "
        return [one + "the luck of one training, and no tiers are made."]
    tiers = tier_table(section.ends, section.pairs)
    return [said for metric in headlines(section) if (said := _of_metric(section, tiers, metric))]


def _alone(section: Section) -> list[str]:
    end = section.ends[0]
    bases = [stage for stage in section.stages if stage.step == 0]
    ways = []
    for metric in headlines(section) if len(bases) == 1 else []:
        before, after = _mean(bases[0], metric), _mean(end, metric)
        if before == before and after == after:
            ways.append(f"{TITLES.get(metric, metric)} {before:.3f} → {after:.3f}")
    went = f" From the base to its end: {', '.join(ways)}." if ways else ""
    return [f"Only {end.label} was trained here, so there is nothing to compare it with.{went}"]


def _mean(stage: Stage, metric: str) -> float:
    grid = stage.grids.get(metric)
    return float("nan") if grid is None else float(spread(grid.terms()).mean)


def _of_metric(section: Section, tiers: pd.DataFrame, metric: str) -> str:
    """Who is above whom, then the greatest differences, then tiers, then what was too small."""
    pairs = [one for one in section.pairs if one.metric == metric]
    order = list(tiers.loc[tiers["metric"] == metric, "label"])
    if len(order) < 2:
        return ""
    shown = {stage.label: f"{stage.label} ({_mean(stage, metric):.3f})" for stage in section.ends}
    above = {a: tuple(b for b in order if _is_above(pairs, a, b)) for a in order}
    said = [*_separated(order, above, shown), *_sizes(pairs, order, above)]
    if len(order) > 2:
        said.append(_tiers(tiers[tiers["metric"] == metric], above))
    return f"{TITLES.get(metric, metric)}: {' '.join([*said, _seen(pairs)])}".rstrip()


def _is_above(pairs: Sequence[Pair], a: str, b: str) -> bool:
    one = between(pairs, a, b) if a != b else None
    return one is not None and one.apart and one.difference.mean > 0


def _separated(
    order: Sequence[str], above: Mapping[str, tuple[str, ...]], shown: Mapping[str, str]
) -> list[str]:
    """A sentence for all groups that are above the same others, the best first."""
    found: dict[tuple[str, ...], list[str]] = {}
    for label in order:
        if above[label]:
            found.setdefault(above[label], []).append(label)
    if not found:
        names = listed([shown[label] for label in order])
        return [f"the data separate no two of {names}." if len(order) > 2 else _both(order, shown)]
    said = [
        f"{listed([shown[label] for label in who])} {'are each' if len(who) > 1 else 'is'} above "
        f"{listed([shown[label] for label in below])}."
        for below, who in found.items()
    ]
    more = len(said) - MOST_SAID
    rest = [f"{more} more such statements are in the matrix of differences."] if more > 0 else []
    return said[:MOST_SAID] + rest


def _both(order: Sequence[str], shown: Mapping[str, str]) -> str:
    return f"the data do not separate {shown[order[0]]} from {shown[order[1]]}."


def _sizes(
    pairs: Sequence[Pair], order: Sequence[str], above: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """The best's difference to the next, and to the best and worst that it is separated from."""
    first, below = order[0], above[order[0]]
    others = dict.fromkeys([order[1], *below[:1], *below[-1:]])
    return [_difference(between(pairs, first, other)) for other in others]


def _tiers(ranked: pd.DataFrame, above: Mapping[str, tuple[str, ...]]) -> str:
    """Who shares the first tier, and why two of it may be separated all the same."""
    first = list(ranked.loc[ranked["tier"] == 1, "label"])
    if len(first) == 1:
        return f"{first[0]} is in the first tier alone."
    told = (
        f"{listed(first)} share the first tier"
        if len(first) < len(ranked)
        else "One tier holds all"
    )
    if any(other in above[label] for label in first for other in first):
        told += ": neighbours in this order are not separated, which links even the ends that are"
    return told + "."


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
