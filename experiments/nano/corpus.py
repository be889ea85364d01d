"""The pretraining corpus: MiniContests statements with deliberately noisy programs.

It uses compositions of the train split only. Each part is replaced by one of its typical mistakes
with a probability that grows with the part's rarity, independently of the others. So the base model
is sometimes right on easy problems and hardly ever on hard ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from envs.tasks.mini import FAMILIES, task
from envs.tasks.mini.build import sample
from envs.tasks.mini.composition import Draft, Part, draft, tier_of
from envs.tasks.mini.splits import compositions

RIGHT = (0.65, 0.42, 0.18)  # probability that a part of level 0, 1, 2 is written correctly
FIRST_MISTAKE = 0.9  # share of the wrong ones that make the part's most typical mistake
TIER_WEIGHTS = {"easy": 0.3, "medium": 0.4, "hard": 0.3}


def mistakes(drawn: Draft, rng: random.Random) -> dict[int, int]:
    """{slot: index of the part's mistake} of the slots that go wrong."""
    wrong: dict[int, int] = {}
    for slot, part in enumerate(drawn.parts):
        if rng.random() >= RIGHT[part.level]:
            wrong[slot] = 0 if rng.random() < FIRST_MISTAKE else 1
    return wrong


def examples(seed: int) -> Iterator[tuple[str, str]]:
    """Endless (prompt, program) pairs of the train split's compositions."""
    rng = random.Random(f"nano/{seed}")
    cells: dict[tuple[str, str], list[tuple[Part, ...]]] = {
        (family.name, tier): [] for family in FAMILIES for tier in TIER_WEIGHTS
    }
    for family in FAMILIES:
        for parts in compositions(family, "train"):
            cells[family.name, tier_of(parts)].append(parts)
    tiers, weights = list(TIER_WEIGHTS), list(TIER_WEIGHTS.values())
    while True:
        family = rng.choice(FAMILIES)
        tier = rng.choices(tiers, weights)[0]
        drawn = draft(rng, family, rng.choice(cells[family.name, tier]))
        shown = sample(drawn, rng, drawn.program(rng))
        if shown is not None:
            text = task.render(drawn.statement, (shown,))
            yield text, drawn.program(rng, mistakes(drawn, rng))
