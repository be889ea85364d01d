"""From a family to one drawn problem: composition, parameters, statement, programs, inputs."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass

from envs.tasks.mini.parts import READS, Code, Family, Part, fill

_TIERS = ("easy", "easy", "medium", "medium")  # by the sum of the parts' levels; above: hard


def split_of(family: Family, parts: tuple[Part, ...]) -> str:
    """The only split that may hold this composition: about 70 % train, 10 % validation, 20 % test.

    A hash decides, so that no split depends on another's size or seed.
    """
    key = "/".join((family.name, *(part.name for part in parts)))
    roll = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % 100
    return "train" if roll < 70 else "validation" if roll < 80 else "test"


def tier_of(parts: tuple[Part, ...]) -> str:
    """easy, medium or hard: rare parts make a problem hard."""
    level = sum(part.level for part in parts)
    return _TIERS[level] if level < len(_TIERS) else "hard"


@dataclass(frozen=True)
class Draft:
    """A composition with its parameters; everything else of a problem follows from it."""

    family: Family
    parts: tuple[Part, ...]
    params: tuple[int | None, ...]

    @property
    def statement(self) -> str:
        """The English text, without samples."""
        phrases = {
            slot: fill(part.phrase, param)
            for (slot, _), part, param in zip(
                self.family.slots, self.parts, self.params, strict=True
            )
        }
        return self.family.statement.format_map(phrases)

    def program(self, rng: random.Random, mistakes: Mapping[int, int] | None = None) -> str:
        """A program in a random form; `mistakes` maps a slot's index to a wrong piece's index."""
        codes = {name: Code(rng.choice(reads)) for name, reads in READS.items()}
        for index, (slot, _) in enumerate(self.family.slots):
            part = self.parts[index]
            if mistakes and index in mistakes:
                piece = part.wrong[min(mistakes[index], len(part.wrong) - 1)]
            else:
                piece = rng.choice(part.right)
            codes[slot] = Code(fill(piece, self.params[index]))
        return rng.choice(self.family.forms(codes)).format_map(codes)

    def stdin(self, rng: random.Random, size: int) -> str:
        """One input; numbers near the parameters are frequent in it."""
        return self.family.stdin(rng, size, [param for param in self.params if param])


def draft(rng: random.Random, family: Family, parts: tuple[Part, ...]) -> Draft:
    """`parts` with parameters drawn."""
    return Draft(family, parts, tuple(part.draw_param(rng) for part in parts))
