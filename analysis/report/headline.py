"""The answer in sentences: who is ahead, by how much, how sure that is, and what was too small."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.load.groups import join_names
from analysis.metrics.definitions import DISTINCT, TITLES
from analysis.metrics.evaluated_models import EvaluatedModel
from analysis.report.section import Section
from analysis.stats.differences import PairedDifference, tier_table
from analysis.stats.intervals import estimate, seed_means
from analysis.stats.power import smallest_difference

MOST_SAID = 4  # statements on who is above whom; power.csv has all
MOST_NAMED = 6  # groups that are named with their means wherever they are; of more, once, in order
MOST_RANKED = 15  # groups that are named behind the first; the table of results has all
FEW = 3  # of many groups that one is above
ONE_TRAINING = (
    "No two groups share two seeds: a difference between algorithms cannot be told from the luck "
    "of one training, and no tiers are made."
)


@dataclass(frozen=True)
class Answer:
    """What is said of one metric, "" where it is of none: short statements."""

    about: str
    said: tuple[str, ...]

    def lines(self) -> list[str]:
        """As plain text."""
        if not self.about:
            return list(self.said)
        return [f"{self.about}:", *(f"  {one}" for one in self.said)]


def headlines(section: Section) -> list[str]:
    """The metrics that the answer is about: the least and the greatest k, and diversity."""
    return list(dict.fromkeys([f"pass@{section.ks[0]}", f"pass@{section.ks[-1]}", DISTINCT]))


def answer(section: Section) -> list[Answer]:
    """One for each headline metric; with one group, how far it came from the base."""
    if not section.ends:
        return []
    if len(section.ends) == 1:
        return [Answer("", (_alone(section),))]
    if max(one.seeds for one in section.pairs) < 2:
        return [Answer("", (ONE_TRAINING,))]
    tiers = tier_table(section.ends, section.pairs)
    every = [_of_metric(section, tiers, metric) for metric in headlines(section)]
    return [one for one in every if one.said]


def _alone(section: Section) -> str:
    end = section.ends[0]
    bases = [stage for stage in section.stages if stage.step == 0]
    ways = []
    for metric in headlines(section) if len(bases) == 1 else []:
        before, after = _mean(bases[0], metric), _mean(end, metric)
        if before == before and after == after:
            ways.append(f"{TITLES.get(metric, metric)} {before:.3f} → {after:.3f}")
    went = f" From the base to its end: {', '.join(ways)}." if ways else ""
    return f"Only {end.label} was trained here, so there is nothing to compare it with.{went}"


def _mean(stage: EvaluatedModel, metric: str) -> float:
    grid = stage.grids.get(metric)
    return (
        float("nan")
        if grid is None
        else float(estimate(seed_means(grid.values, grid.weights)).mean)
    )


def _of_metric(section: Section, tiers: pd.DataFrame, metric: str) -> Answer:
    """Who is above whom, then the greatest differences, then tiers, then what was too small."""
    pairs = [one for one in section.pairs if one.metric == metric]
    order = list(tiers.loc[tiers["metric"] == metric, "label"])
    title = TITLES.get(metric, metric)
    if len(order) < 2:
        return Answer(title, ())
    if max(one.seeds for one in pairs) < 2:
        return Answer(title, (ONE_TRAINING,))
    means = {stage.label: f"{_mean(stage, metric):.3f}" for stage in section.ends}
    many = len(order) > MOST_NAMED
    named = {label: f"{label} ({means[label]})" for label in order}
    shown = {label: label for label in order} if many else named
    above = {a: tuple(b for b in order if _is_above(pairs, a, b)) for a in order}
    ranked = join_names([named[label] for label in order[1:]], MOST_RANKED)
    said = [f"Highest mean: {named[order[0]]}; then {ranked}."] if many else []
    said += [*_separated(order, above, shown), *_sizes(pairs, order, above)]
    if len(order) > 2:
        said.append(_tiers(tiers[tiers["metric"] == metric], above))
    return Answer(title, tuple(one for one in (*said, _seen(pairs)) if one))


def _is_above(pairs: Sequence[PairedDifference], a: str, b: str) -> bool:
    one = between(pairs, a, b) if a != b else None
    return one is not None and one.separated and one.difference.mean > 0


def _separated(
    order: Sequence[str], above: Mapping[str, tuple[str, ...]], shown: Mapping[str, str]
) -> list[str]:
    """A statement for all groups that are above the same others, the best first."""
    found: dict[tuple[str, ...], list[str]] = {}
    for label in order:
        if above[label]:
            found.setdefault(above[label], []).append(label)
    if not found:
        names = (
            "these" if len(order) > MOST_NAMED else join_names([shown[label] for label in order])
        )
        return [f"The data separate no two of {names}." if len(order) > 2 else _both(order, shown)]
    said = [
        f"{join_names([shown[label] for label in who])} {'are each' if len(who) > 1 else 'is'} above "
        f"{_below(order, below, shown)}."
        for below, who in found.items()
    ]
    if (more := len(said) - MOST_SAID) > 0:
        rest = f"{more} more such; power.csv says of every pair whether it is separated."
        return [*said[:MOST_SAID], rest]
    return said


def _below(order: Sequence[str], below: tuple[str, ...], shown: Mapping[str, str]) -> str:
    """By name; of many the first few, or where they begin if that is all."""
    if len(order) <= MOST_NAMED:
        return join_names([shown[label] for label in below])
    if len(below) > FEW and below == tuple(order[-len(below) :]):
        return f"all {len(below)} from {shown[below[0]]} on in this order"
    return join_names([shown[label] for label in below], FEW if len(below) > FEW + 1 else FEW + 1)


def _both(order: Sequence[str], shown: Mapping[str, str]) -> str:
    return f"The data do not separate {shown[order[0]]} from {shown[order[1]]}."


def _sizes(
    pairs: Sequence[PairedDifference], order: Sequence[str], above: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """The best's difference to the next, and to the best and worst that it is separated from."""
    first, below = order[0], above[order[0]]
    others = dict.fromkeys([order[1], *below[:1], *below[-1:]])
    return [_difference(between(pairs, first, other), len(pairs)) for other in others]


def _tiers(ranked: pd.DataFrame, above: Mapping[str, tuple[str, ...]]) -> str:
    """Who shares the first tier, and why two of it may be separated all the same."""
    first = list(ranked.loc[ranked["tier"] == 1, "label"])
    if len(first) == 1:
        return f"{first[0]} is in the first tier alone."
    told = (
        f"{join_names(first)} share the first tier"
        if len(first) < len(ranked)
        else "One tier holds all"
    )
    if any(other in above[label] for label in first for other in first):
        told += ": nowhere in this order are all before separated from all behind"
    return told + "."


def between(pairs: Sequence[PairedDifference], a: str, b: str) -> PairedDifference:
    """The pair a - b, whichever way it was kept."""
    for one in pairs:
        if (one.a, one.b) == (a, b):
            return one
        if (one.a, one.b) == (b, a):
            return one.reversed()
    raise KeyError((a, b))


def _difference(one: PairedDifference, pairs: int) -> str:
    if one.seeds == 0:
        return f"{one.a} and {one.b} share no seed or problem and are not compared."
    found = f"{one.a} − {one.b}: {signed(one)}"
    if one.seeds == 1:
        return f"{found} on 1 seed, without an interval."
    d = one.difference
    if (d.low > 0 or d.high < 0) and not one.separated:
        family = f" (Holm, {pairs} pairs)" if pairs > 1 else ""
        found += f", not separated by the stricter test{family}"
    return f"{found}; {one.seeds} seeds, {one.problems} problem{'s' * (one.problems != 1)}."


def signed(one: PairedDifference) -> str:
    """+0.052 [−0.020, 0.124], as far as it is known."""
    d = one.difference
    ends = "" if d.low != d.low else f" [{d.low:+.3f}, {d.high:+.3f}]"
    return "–" if d.mean != d.mean else f"{d.mean:+.3f}{ends}".replace("-", "−")


def _seen(pairs: Sequence[PairedDifference]) -> str:
    """What the design could tell, where some pair was not told apart."""
    blind = [one for one in pairs if not one.separated and one.seeds > 1]
    every = [float(smallest_difference(one.estimate)) for one in blind]
    known = [one for one in every if math.isfinite(one)]
    if not known or max(known) == 0:
        return ""
    low, high = min(known), max(known)
    if low >= 1:
        return "No difference, however great, would have been told from 0."
    ends = [_size(low), *([_size(min(high, 1))] if high - low >= 0.005 else [])]
    return (
        f"Not separated does not mean equal: only a true difference of {' to '.join(ends)} would "
        "have been told from 0 in most such comparisons."
    )


def _size(difference: float) -> str:
    return f"{difference:.2f}" if difference >= 0.01 else f"{difference:.3f}"


def matrix(
    section: Section, metric: str, intervals: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Heading and rows of row − column; a star where the two are separated."""
    pairs = [one for one in section.pairs if one.metric == metric]
    labels = [stage.label for stage in section.ends if metric in stage.grids]

    def cell(one: PairedDifference) -> str:
        shown = signed(one) if intervals else _short(one.difference.mean)
        return shown + (" *" if one.separated else "")

    rows = [[a, *("" if a == b else cell(between(pairs, a, b)) for b in labels)] for a in labels]
    return ["row − column", *labels], rows


def _short(difference: float) -> str:
    if difference != difference:
        return "–"
    return "0.00" if abs(difference) < 0.005 else f"{difference:+.2f}".replace("-", "−")
