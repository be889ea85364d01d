"""Tiers instead of ranks: groups that the data do not separate share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SIGNIFICANCE = 0.05


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of a family of comparisons (Holm 1979, Scand. J. Stat. 6), in their order.

    The chance that any of those without a true difference is below 0.05 is at most 5 %. A NaN, for
    a comparison that could not be made, stays one and counts in the family.
    """
    order = sorted(range(len(p_values)), key=lambda i: (p_values[i] != p_values[i], p_values[i]))
    adjusted, least = list(p_values), 0.0
    for place, i in enumerate(order):
        if p_values[i] == p_values[i]:
            least = max(least, min(1.0, (len(p_values) - place) * p_values[i]))
            adjusted[i] = least
    return adjusted


def tiers(means: Mapping[str, float], p_values: Mapping[tuple[str, str], float]) -> dict[str, int]:
    """label → tier, 1 that of the greatest mean; labels without a mean have none.

    `p_values` are adjusted, of pairs (a, b) of which a has the greater value where the two are
    compared: which is not always the greater mean, where a mean is over problems of its own. A
    tier ends where every group above lies apart from, and above, every group below: of A, B and C
    with only A and C apart, all share one tier, since neither neighbour of B can be told from it.
    """
    order = sorted((x for x in means if means[x] == means[x]), key=lambda x: -means[x])
    found: dict[str, int] = {}
    tier = 1
    for place, label in enumerate(order):
        above, below = order[:place], order[place:]
        if above and all(_above(p_values, a, b) for a in above for b in below):
            tier += 1
        found[label] = tier
    return found


def _above(p_values: Mapping[tuple[str, str], float], a: str, b: str) -> bool:
    return p_values.get((a, b), float("nan")) < SIGNIFICANCE
