"""The pretraining corpus: MiniContests statements with deliberately noisy programs.

It uses compositions of the train split only. Each part is replaced by one of its typical mistakes
with a probability that grows with the part's rarity, independently of the others. So the base model
is sometimes right on easy problems and hardly ever on hard ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from envs.problem import Test
from envs.tasks.mini.families import Draft, Part, draft
from envs.tasks.mini.problems import (
    MINI,
    MINI_LONG,
    ProblemSet,
    compositions,
    render,
    sample,
)


class Conversation(NamedTuple):
    """What a model learns from: answers to a prompt, and what was observed between them."""

    prompt: str
    answers: tuple[str, ...]  # programs
    observations: tuple[str, ...] = ()  # one after each answer but the last


@dataclass(frozen=True)
class Noise:
    """How often a corpus is wrong, and how hard its problems are."""

    right: tuple[float, float, float]  # probability that a part of level 0, 1, 2 is right
    first_mistake: float = 0.9  # share of the wrong ones that make the most typical mistake
    tiers: Mapping[str, float] = field(
        default_factory=lambda: {"easy": 0.3, "medium": 0.4, "hard": 0.3}
    )

    def mistakes(self, drawn: Draft, rng: random.Random) -> dict[int, int]:
        """{slot: index of the part's mistake} of the slots that go wrong."""
        wrong: dict[int, int] = {}
        for slot, part in enumerate(drawn.parts):
            if rng.random() >= self.right[part.level]:
                wrong[slot] = 0 if rng.random() < self.first_mistake else 1
        return wrong


# A program of the longer problems has twice the parts, so each is right more often.
NOISE = {MINI: Noise((0.65, 0.42, 0.18)), MINI_LONG: Noise((0.8, 0.6, 0.4))}


class Corpus(Iterator[Conversation]):
    """Endless prompts of the train split's compositions, each with one program.

    The state of `rng` is the position in them.
    """

    def __init__(self, problem_set: ProblemSet, seed: int) -> None:
        name = "nano" if problem_set is MINI else f"nano/{problem_set.name}"
        self.rng = random.Random(f"{name}/{seed}")
        self.families = problem_set.families
        self.noise = NOISE[problem_set]
        self._cells: dict[tuple[str, str], list[tuple[Part, ...]]] = {
            (family.name, tier): [] for family in self.families for tier in self.noise.tiers
        }
        for family in self.families:
            for parts in compositions(problem_set, family, "train"):
                self._cells[family.name, family.tier(parts)].append(parts)

    def __next__(self) -> Conversation:
        drawn, shown = self.draw()
        program = drawn.program(self.rng, self.noise.mistakes(drawn, self.rng))
        return Conversation(render(drawn.statement, (shown,)), (program,))

    def draw(self) -> tuple[Draft, Test]:
        """Draw a problem, and the test that its statement shows."""
        rng, tiers = self.rng, self.noise.tiers
        while True:
            family = rng.choice(self.families)
            tier = rng.choices(list(tiers), list(tiers.values()))[0]
            drawn = draft(rng, family, rng.choice(self._cells[family.name, tier]))
            shown = sample(drawn, rng, drawn.program(rng))
            if shown is not None:
                return drawn, shown
