"""The splits of MiniContests: which compositions are in train, tune, choose and test.

A hash decides. Rolls 0 to 69 are train, 70 to 79 tune, 80 to 89 choose, 90 to 99 test. An earlier
version drew the test problems of `task=mini` from rolls 80 to 99, and defaults were chosen on them.
Every composition of that draw is in choose, so none of them is in test.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from envs.tasks.mini.composition import Family, Part

Composition = tuple[Part, ...]

SPLITS = ("train", "tune", "choose", "test")
TIERS = ("easy", "medium", "hard")


@dataclass(frozen=True, eq=False)
class ProblemSet:
    """The families of a task, and what its splits are drawn by."""

    name: str  # of the task
    families: tuple[Family, ...]
    streams: Mapping[str, str]  # split → the name of its stream of random numbers
    # compositions of each family and tier that an earlier test split used, at most
    drawn_before: int = 0

    def stream(self, split: str, seed: int, *cell: str) -> random.Random:
        """Return the random numbers of a split, or of one of its cells (family and tier)."""
        return random.Random("/".join((self.name, self.streams[split], str(seed), *cell)))


def roll(family: Family, composition: Composition) -> int:
    """Return the number from 0 to 99 that decides a composition's split."""
    key = "/".join((family.name, *(part.name for part in composition)))
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % 100


@cache
def compositions(problem_set: ProblemSet, family: Family, split: str) -> tuple[Composition, ...]:
    """Return all compositions of a family in a split, in a fixed order."""
    if split == "train":
        return _with_rolls(family, 0, 70)
    if split == "tune":
        return _with_rolls(family, 70, 80)
    drawn = {
        composition for tier in TIERS for composition in _drawn_before(problem_set, family, tier)
    }
    return tuple(
        composition
        for composition in _with_rolls(family, 80, 100)
        if (composition in drawn or roll(family, composition) < 90) == (split == "choose")
    )


def shuffled(
    problem_set: ProblemSet, family: Family, tier: str, split: str, rng: random.Random
) -> list[Composition]:
    """Return a split's compositions of a family and tier in random order.

    Choose keeps the order of the earlier test split, of which it is a part.
    """
    if split != "choose":
        return _shuffle(compositions(problem_set, family, split), family, tier, rng)
    kept = set(compositions(problem_set, family, split))
    earlier = _shuffle(_with_rolls(family, 80, 100), family, tier, rng)
    return [composition for composition in earlier if composition in kept]


def _drawn_before(problem_set: ProblemSet, family: Family, tier: str) -> list[Composition]:
    """Return the compositions that the earlier test split may have drawn from a cell."""
    rng = problem_set.stream("choose", 0, family.name, tier)
    return _shuffle(_with_rolls(family, 80, 100), family, tier, rng)[: problem_set.drawn_before]


def _shuffle(
    candidates: tuple[Composition, ...], family: Family, tier: str, rng: random.Random
) -> list[Composition]:
    cell = [composition for composition in candidates if family.tier(composition) == tier]
    rng.shuffle(cell)
    return cell


@cache
def _with_rolls(family: Family, low: int, high: int) -> tuple[Composition, ...]:
    """Return the compositions with low <= roll < high, in the order of the slots' parts."""
    slots = [parts for _, parts in family.slots]
    return tuple(
        composition
        for composition in itertools.product(*slots)
        if low <= roll(family, composition) < high
    )
