"""Headline statements on what was named before the runs: contrasts, a control, a margin."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis.load.groups import join_names
from analysis.stats.differences import ANSWERS, EQUAL, UNDECIDED, PairedDifference
from analysis.stats.named_pairs import ContrastTest

MOST_PAIRS = 6  # listed in a statement; the tables have all
MOST_GROUPS = 15


def contrast_statements(contrasts: Sequence[ContrastTest]) -> list[str]:
    """State the contrasts of one metric, the decided ones by name; [] if none was tested."""
    if all(math.isnan(one.p) for one in contrasts):
        return []
    decided = [contrast_phrase(one) for one in contrasts if one.answer != UNDECIDED]
    open_ones = len(contrasts) - len(decided)
    parts = _listed(decided, "contrasts.csv")
    parts += [f"{open_ones} not decided"] * bool(open_ones)
    many = len(contrasts)
    alone = f"{many} pairs; corrected for these alone, so smaller differences can be significant"
    family = alone if many > 1 else "1 pair"
    return [f"Named before the runs ({family}): {'; '.join(parts)}."]


def contrast_phrase(one: ContrastTest) -> str:
    """Say what a decided contrast found: "a above b", or "a less than 0.05 below b"."""
    a, b = one.pair.a, one.pair.b
    if not one.margin:
        return f"{a} {one.answer} {b}"
    amount = "less" if one.answer == "above" else "more"
    return f"{a} {amount} than {one.margin:g} below {b}"


def control_statements(differences: Sequence[PairedDifference]) -> list[str]:
    """State one metric's comparisons with the control; [] without a control."""
    if not differences:
        return []
    if all(math.isnan(one.adjusted_p) for one in differences):
        return [
            f"Against {differences[0].b} nothing was tested: no group shares two seeds with it."
        ]
    parts = []
    for answer in ANSWERS:
        if labels := [one.a for one in differences if one.answer == answer]:
            within = f" within {differences[0].margin:g}" if answer == EQUAL else ""
            parts.append(f"{answer}{within}: {join_names(labels, MOST_GROUPS)}")
    many = f"{len(differences)} comparison{'s' * (len(differences) != 1)}"
    return [f"Against {differences[0].b} alone (Dunnett, {many}), {'; '.join(parts)}."]


def equality_statements(pairs: Sequence[PairedDifference]) -> list[str]:
    """State which pairs of one metric are equal within the margin, and what deciding takes."""
    tested = [pair for pair in pairs if not math.isnan(pair.equal_p)]
    if not tested:
        return []
    margin = f"{tested[0].margin:g}"
    statements = []
    if equal := [f"{pair.a} and {pair.b}" for pair in tested if pair.answer == EQUAL]:
        listed = "; ".join(_listed(equal, "differences.csv"))
        statements.append(f"Equal within {margin}: {listed}.")
    if open_ones := [pair for pair in tested if pair.answer == UNDECIDED]:
        count = f"{len(open_ones)} of {len(tested)} pair{'s' * (len(tested) != 1)}"
        statements.append(f"Not decided within {margin}: {count}; {decision_needs(open_ones)}.")
    return statements


def decision_needs(pairs: Sequence[PairedDifference]) -> str:
    """Say how many seeds an answer would take, or where these do not suffice how many problems."""
    parts = []
    by_seeds = [p.seeds_to_decide for p in pairs if math.isfinite(p.seeds_to_decide)]
    others = [p for p in pairs if not math.isfinite(p.seeds_to_decide)]
    by_problems = [p.problems_to_decide for p in others if math.isfinite(p.problems_to_decide)]
    if by_seeds:
        parts.append(f"an answer takes {_range(by_seeds)} seeds")
    if by_problems:
        of = f"for {len(by_problems)} of them " * bool(by_seeds)
        parts.append(f"{of}no number of seeds suffices, but {_range(by_problems)} problems would")
    if left := len(others) - len(by_problems):
        of = f"for {left} of them " * (left < len(pairs))
        parts.append(f"{of}an answer takes more of both seeds and problems")
    return ", ".join(parts)


def _range(numbers: Sequence[float]) -> str:
    low, high = f"{min(numbers):,.0f}", f"{max(numbers):,.0f}"
    return low if low == high else f"{low} to {high}"


def _listed(texts: Sequence[str], file: str) -> list[str]:
    more = len(texts) - MOST_PAIRS
    return [*texts[:MOST_PAIRS], *([f"{more} more ({file})"] if more > 0 else [])]
