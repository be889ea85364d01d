"""The solve rate at equal tokens, so that conversations can be held against single samples."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np


def solved_within(right: Sequence[int], wrong: Sequence[int], budget: int) -> float:
    """Return the chance that one of a problem's conversations solves it within a token budget.

    Conversations are drawn one after the other until `budget` generated tokens are spent, and each
    one that ends within it submits its last answer. `right` and `wrong` have the tokens of the
    sampled conversations, by that answer. The mean over all orders of them is exact: the first
    right one, of t tokens, comes after a set of j wrong ones with chance j! (n − j − 1)! / n!, and
    counts if t and the set's tokens are at most the budget. Sets are counted by size and tokens.

    It is unbiased if the budget ends before the conversations do. Otherwise it is that of all of
    them, a lower bound. Raises ValueError without a conversation.
    """
    n = len(right) + len(wrong)
    if not n:
        raise ValueError("no conversation")
    if not right or min(right) > budget:
        return 0.0
    sets = _sets_within(wrong, budget)
    spare = budget - np.asarray(right)
    within = sets[:, spare[spare >= 0]].sum(axis=1)  # (size,)
    chance = [1 / (n * comb(n - 1, size)) for size in range(len(sets))]
    return float(np.dot(within, chance))


def _sets_within(tokens: Sequence[int], budget: int) -> np.ndarray:
    """Return the number of sets by size j and most tokens s, as (j, s); s from 0 to the budget."""
    kept = [one for one in tokens if one <= budget]
    fits = int((np.cumsum(sorted(kept)) <= budget).sum())  # the most that fit together
    sets = np.zeros((fits + 1, budget + 1))
    sets[0, 0] = 1.0
    for one in kept:
        sets[1:, one:] += sets[:-1, : budget + 1 - one].copy()
    return sets.cumsum(axis=1)
