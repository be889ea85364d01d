"""The pieces of a MiniContests problem: a phrase of English and the code that it stands for.

A composition takes one part from every slot of a family. Each part also knows its typical
mistakes, so that wrong programs are wrong in the way a person's would be.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
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
    """Code with holes: `@` is filled by the format spec, so that `{cond:x}` reads as a template."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return self.replace("@", spec or "x")


@dataclass(frozen=True, slots=True)
class Part:
    """One choice of a slot. `#` stands for the part's parameter, `@` for what it works on."""

    name: str  # unique in its slot
    level: int  # 0 common, 1 uncommon, 2 rare: how often it is right in the pretraining programs
    phrase: str
    right: tuple[str, ...]  # equivalent pieces of code
    wrong: tuple[str, ...]  # typical mistakes, the most typical first
    params: tuple[int, ...] = ()
    signed: bool = True  # works on negative integers too

    def draw_param(self, rng: random.Random) -> int | None:
        """A value for `#`, None where the part has no parameter."""
        return rng.choice(self.params) if self.params else None


def fill(text: str, param: int | None) -> str:
    """`text` with its parameter written in."""
    return text if param is None else text.replace("#", str(param))


@dataclass(frozen=True)
class Family:
    """A kind of problem: its slots, how it is told, how it is solved, what it reads."""

    name: str
    slots: tuple[tuple[str, tuple[Part, ...]], ...]  # (slot name, its parts)
    statement: str  # a template over the slots' phrases
    forms: Callable[[dict[str, Code]], Sequence[str]]  # the program templates that fit these codes
    stdin: Callable[[random.Random, int, Sequence[int]], str]  # (rng, size, values worth hitting)
    sample_size: int = 4
    sizes: tuple[int, ...] = (1, 2, 3, 5, 7, 9, 12, 20)  # of the hidden tests


def simple_enough(codes: dict[str, Code], slot: str, inline: Sequence[str], named: Sequence[str]):
    """All forms, or only those that give the list a name where the slot's code needs it twice."""
    return tuple(named) if codes[slot].count("@") > 1 else tuple(inline) + tuple(named)


def draw_int(rng: random.Random, values: Sequence[int]) -> int:
    """A non-negative integer, often near a parameter: that is where off-by-one mistakes show."""
    roll = rng.random()
    if values and roll < 0.3:
        return max(0, rng.choice(values) + rng.choice((-1, 0, 0, 1)))
    return rng.randint(0, 12) if roll < 0.65 else rng.randint(0, 40) if roll < 0.95 else 100


def int_line(rng: random.Random, size: int, values: Sequence[int]) -> str:
    """`size` integers on one line."""
    return " ".join(str(draw_int(rng, values)) for _ in range(size)) + "\n"


def word(rng: random.Random, size: int) -> str:
    """`size` letters and digits with many repetitions, so that counting ones matters."""
    pool = rng.choices(ascii_letters + "aeiouAEmmz" + "0123456789" * 2, k=max(2, size * 2 // 3))
    return "".join(rng.choice(pool) for _ in range(size))
