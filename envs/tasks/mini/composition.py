"""Compositions of MiniContests: parts, families, and the draft of a problem.

A part is a phrase of English and the code that it stands for, with its typical mistakes, so that
wrong programs resemble a person's. A composition takes one part for every slot of a family. A draft
adds parameters; statement, programs and inputs follow from it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters

READ_INTS = (
    "map(int,input().split())",
    "[int(w) for w in input().split()]",
    "list(map(int,input().split()))",
    "[*map(int,input().split())]",
    "map(int,open(0).read().split())",
)
READS = {
    "ints": READ_INTS,
    "list": READ_INTS[1:4],
    "word": ("input()", "input().strip()", "open(0).read().strip()"),
    "grid": (
        "[[*map(int,s.split())] for s in open(0)]",
        "[list(map(int,s.split())) for s in open(0)]",
        "[[int(w) for w in s.split()] for s in open(0)]",
    ),
}


class Code(str):
    """Code in which the format spec replaces `@`, so that `{cond:x}` works in a template."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return self.replace("@", spec or "x")


@dataclass(frozen=True, slots=True)
class Part:
    """One choice for a slot. `#` stands for the part's parameter, `@` for its operand."""

    name: str  # unique in its slot
    level: int  # 0 common, 1 uncommon, 2 rare: how often pretraining programs get it right
    phrase: str
    right: tuple[str, ...]  # equivalent pieces of code
    wrong: tuple[str, ...]  # typical mistakes, the most typical first
    params: tuple[int, ...] = ()
    signed: bool = True  # works on negative integers too

    def draw_param(self, rng: random.Random) -> int | None:
        """Draw a value for `#`; None if the part has no parameter."""
        return rng.choice(self.params) if self.params else None


def fill(text: str, param: int | None) -> str:
    """Replace `#` by the parameter."""
    return text if param is None else text.replace("#", str(param))


@dataclass(frozen=True)
class Family:
    """A kind of problem: its slots, statement, program templates and inputs."""

    name: str
    slots: tuple[tuple[str, tuple[Part, ...]], ...]  # (slot name, its parts)
    statement: str  # a template with the slots' phrases
    forms: Callable[[dict[str, Code]], Sequence[str]]  # program templates that fit these codes
    stdin: Callable[[random.Random, int, Sequence[int]], str]  # (rng, size, values to hit often)
    sample_size: int = 4
    sizes: tuple[int, ...] = (1, 2, 3, 5, 7, 9, 12, 20)  # of the hidden tests
    # sums of the parts' levels from which a problem is medium, and hard
    medium: int = 2
    hard: int = 4

    def tier(self, parts: tuple[Part, ...]) -> str:
        """Return easy, medium or hard: rare parts make a problem hard."""
        level = sum(part.level for part in parts)
        return "easy" if level < self.medium else "medium" if level < self.hard else "hard"


def usable_forms(
    codes: dict[str, Code], slot: str, inline: Sequence[str], named: Sequence[str]
) -> Sequence[str]:
    """Return all forms; only those with a named list if the slot's code uses it twice."""
    return tuple(named) if codes[slot].count("@") > 1 else tuple(inline) + tuple(named)


def draw_int(rng: random.Random, values: Sequence[int]) -> int:
    """Draw a non-negative integer, often near a parameter, where off-by-one mistakes show."""
    roll = rng.random()
    if values and roll < 0.3:
        return max(0, rng.choice(values) + rng.choice((-1, 0, 0, 1)))
    return rng.randint(0, 12) if roll < 0.65 else rng.randint(0, 40) if roll < 0.95 else 100


def int_line(rng: random.Random, size: int, values: Sequence[int]) -> str:
    """Draw a line of `size` integers."""
    return " ".join(str(draw_int(rng, values)) for _ in range(size)) + "\n"


def word(rng: random.Random, size: int) -> str:
    """Draw `size` letters and digits with many repetitions, so that counting matters."""
    pool = rng.choices(ascii_letters + "aeiouAEmmz" + "0123456789" * 2, k=max(2, size * 2 // 3))
    return "".join(rng.choice(pool) for _ in range(size))


@dataclass(frozen=True)
class Draft:
    """A composition with its parameters."""

    family: Family
    parts: tuple[Part, ...]
    params: tuple[int | None, ...]

    @property
    def statement(self) -> str:
        """The English statement, without samples."""
        phrases = {
            slot: fill(part.phrase, param)
            for (slot, _), part, param in zip(
                self.family.slots, self.parts, self.params, strict=True
            )
        }
        return self.family.statement.format_map(phrases)

    def program(self, rng: random.Random, mistakes: Mapping[int, int] | None = None) -> str:
        """Write a program in a random form; `mistakes` maps slot indices to wrong pieces."""
        return self._write(lambda _, options: rng.choice(options), mistakes or {})

    def version(self, style: str, mistakes: Mapping[int, int]) -> str:
        """Write the program of a style. Two versions of a style differ in their mistakes alone."""
        return self._write(
            lambda name, options: random.Random(f"{style}/{name}").choice(options), mistakes
        )

    def _write(
        self, choose: Callable[[str, Sequence[str]], str], mistakes: Mapping[int, int]
    ) -> str:
        """Write a program; `choose` takes one of the pieces that fit a named place."""
        codes = {name: Code(choose(name, reads)) for name, reads in READS.items()}
        for index, (slot, _) in enumerate(self.family.slots):
            part = self.parts[index]
            if index in mistakes:
                piece = part.wrong[min(mistakes[index], len(part.wrong) - 1)]
            else:
                piece = choose(slot, part.right)
            codes[slot] = Code(fill(piece, self.params[index]))
        return choose("form", self.family.forms(codes)).format_map(codes)

    def stdin(self, rng: random.Random, size: int) -> str:
        """Draw an input, in which numbers near the parameters are frequent."""
        return self.family.stdin(rng, size, [param for param in self.params if param])


def draft(rng: random.Random, family: Family, parts: tuple[Part, ...]) -> Draft:
    """Draw parameters for `parts`."""
    return Draft(family, parts, tuple(part.draw_param(rng) for part in parts))
