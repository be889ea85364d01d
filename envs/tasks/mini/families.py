"""Families of MiniContests, read from families.yaml, and the drafts of their problems.

A part is a phrase of English and the code that it stands for, with its typical mistakes, so that
wrong programs resemble a person's. A family has slots; a composition takes one part for each slot.
A draft adds parameters; statement, programs and inputs follow from it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters
from typing import Any

import yaml

FAMILIES_FILE = Path(__file__).with_name("families.yaml")
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


@dataclass(frozen=True)
class Family:
    """A kind of problem: its slots, statement, program templates and inputs."""

    name: str
    slots: tuple[tuple[str, tuple[Part, ...]], ...]  # (slot name, its parts)
    statement: str  # a template with the slots' phrases
    named: tuple[str, ...]  # program templates
    stdin: Callable[[random.Random, int, Sequence[int]], str]  # (rng, size, values to hit often)
    inline: tuple[str, ...] = ()  # templates that write a list out in the place of slot `twice`
    twice: str = ""  # a slot whose code may use its operand twice: then the list needs a name
    prefix_sums: tuple[str, ...] = ()  # of `queries`: templates for plain sums from l to r
    sample_size: int = 4
    sizes: tuple[int, ...] = (1, 2, 3, 5, 7, 9, 12, 20)  # of the hidden tests
    # sums of the parts' levels from which a problem is medium, and hard
    medium: int = 2
    hard: int = 4

    def tier(self, parts: tuple[Part, ...]) -> str:
        """Return easy, medium or hard: rare parts make a problem hard."""
        level = sum(part.level for part in parts)
        return "easy" if level < self.medium else "medium" if level < self.hard else "hard"

    def forms(self, codes: Mapping[str, Code]) -> Sequence[str]:
        """Return the program templates that fit these codes."""
        named = self.named
        if self.prefix_sums:
            if "sorted" in codes["range"] or "open" in codes["ints"]:
                named = named[:2]
            if codes["range"] == "a[l-1:r]" and codes["reduce"] == "sum(@)":
                named += self.prefix_sums
        if self.twice and codes[self.twice].count("@") > 1:
            return named
        return self.inline + named


def draw_int(rng: random.Random, values: Sequence[int]) -> int:
    """Draw a non-negative integer, often near a parameter, where off-by-one mistakes show."""
    roll = rng.random()
    if values and roll < 0.3:
        return max(0, rng.choice(values) + rng.choice((-1, 0, 0, 1)))
    return rng.randint(0, 12) if roll < 0.65 else rng.randint(0, 40) if roll < 0.95 else 100


def draw_word(rng: random.Random, size: int) -> str:
    """Draw `size` letters and digits with many repetitions, so that counting matters."""
    pool = rng.choices(ascii_letters + "aeiouAEmmz" + "0123456789" * 2, k=max(2, size * 2 // 3))
    return "".join(rng.choice(pool) for _ in range(size))


def _integers(rng: random.Random, size: int, values: Sequence[int]) -> str:
    return " ".join(str(draw_int(rng, values)) for _ in range(size)) + "\n"


def _number(rng: random.Random, size: int, values: Sequence[int]) -> str:
    n = rng.choice((6, 12, 16, 24, 30, 36, 48, 60, 72, 90, 120)) if rng.random() < 0.5 else None
    return f"{n or rng.randint(1, 10 * size)}\n"


def _grid(rng: random.Random, size: int, values: Sequence[int]) -> str:
    rows, columns = (3, 3) if size <= 2 else (rng.randint(3, size + 2), rng.randint(3, size + 2))
    return "".join(_integers(rng, columns, (*values, 0)) for _ in range(rows))


def _queries(rng: random.Random, size: int, values: Sequence[int]) -> str:
    length, queries = (3, 2) if size <= 2 else (size + 2, min(size, 6))
    lines = [_integers(rng, length, values), f"{queries}\n"]
    for _ in range(queries):
        # indices avoid both ends, so 0-based and 1-based readings are both in range
        left = rng.randint(1, length - 1)
        lines.append(f"{left} {rng.randint(left, length - 1)}\n")
    return "".join(lines)


STDIN = {
    "integers": _integers,
    "neighbours": lambda rng, size, values: _integers(rng, size + 1, values),
    "two_lines": lambda rng, size, values: "".join(_integers(rng, size, values) for _ in "12"),
    "number": _number,
    "grid": _grid,
    "queries": _queries,
    "word": lambda rng, size, _: draw_word(rng, size) + "\n",
    "words": lambda rng, size, _: (
        " ".join(draw_word(rng, rng.randint(2, 8)) for _ in range(size)) + "\n"
    ),
}


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
            slot: _fill(part.phrase, param)
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
            codes[slot] = Code(_fill(piece, self.params[index]))
        return choose("form", self.family.forms(codes)).format_map(codes)

    def stdin(self, rng: random.Random, size: int) -> str:
        """Draw an input, in which numbers near the parameters are frequent."""
        return self.family.stdin(rng, size, [param for param in self.params if param])


def draft(rng: random.Random, family: Family, parts: tuple[Part, ...]) -> Draft:
    """Draw parameters for `parts`."""
    params = tuple(rng.choice(part.params) if part.params else None for part in parts)
    return Draft(family, parts, params)


def _fill(text: str, param: int | None) -> str:
    return text if param is None else text.replace("#", str(param))


def load_families() -> dict[str, tuple[Family, ...]]:
    """Return the families of each problem set (mini, mini_long)."""
    loaded: dict[str, Any] = yaml.load(FAMILIES_FILE.read_bytes(), Loader=yaml.CSafeLoader)
    lists = {
        name: {part: Part(part, **_with_tuples(keys)) for part, keys in parts.items()}
        for name, parts in loaded.pop("parts").items()
    }

    def slot_parts(choices: Sequence[str]) -> Iterator[Part]:
        for choice in choices:
            name, _, part = choice.partition(".")
            yield from [lists[name][part]] if part else lists[name].values()

    def family(name: str, keys: dict[str, Any]) -> Family:
        slots = keys.pop("slots").items()
        parts = tuple((slot, tuple(slot_parts(choices))) for slot, choices in slots)
        return Family(name, parts, stdin=STDIN[keys.pop("stdin")], **_with_tuples(keys))

    return {
        set_name: tuple(family(name, keys) for name, keys in families.items())
        for set_name, families in loaded.items()
    }


def _with_tuples(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in keys.items()}
