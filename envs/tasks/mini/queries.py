"""Family of range queries over a line of integers; plain sums also by prefix sums."""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.tasks.mini.composition import Code, Family, Part, int_line, usable_forms
from envs.tasks.mini.integers import MAPS, VALUES

_INCLUSIVE = "a[l-1:r]"
_RANGES = (
    Part("inclusive", 0, "from l to r", (_INCLUSIVE,), ("a[l:r]", "a[l-1:r-1]")),
    Part("zero_based", 0, "from l to r (0-based)", ("a[l:r+1]",), ("a[l:r]", _INCLUSIVE)),
    Part(
        "outside",
        1,
        "outside l to r",
        ("(a[:l-1]+a[r:])", "[*a[:l-1],*a[r:]]"),
        ("(a[:l]+a[r:])", "a[r:]"),
    ),
    Part("prefix", 1, "up to r", ("a[:r]", "a[0:r]"), ("a[:r-1]", "a[r:]")),
    Part("suffix", 1, "from l on", ("a[l-1:]",), ("a[l:]", "a[:l]")),
    Part("sorted", 2, "ranked l to r", ("sorted(a)[l-1:r]",), (_INCLUSIVE, "sorted(a[l-1:r])")),
    Part(
        "alternate",
        2,
        "l, l+2, ... to r",
        ("a[l-1:r:2]", "a[l-1:r][::2]"),
        (_INCLUSIVE, "a[l:r:2]"),
    ),
    Part(
        "two",
        2,
        "l and r only",
        ("[a[l-1],a[r-1]]", "(a[l-1],a[r-1])"),
        ("[a[l],a[r]]", _INCLUSIVE),
    ),
    Part("after", 2, "after r", ("a[r:]", "a[r::]"), ("a[r-1:]", "a[r+1:]")),
)
_A = "a={list}\n"
_LOOP = _A + "for _ in range(int(input())):\n l,r=map(int,input().split())\n "
_ROWS = "a,_,*q=[[*map(int,s.split())] for s in open(0)]\n"
_INLINE = (
    _LOOP + "print({reduce:[{map} for x in {range}]})",
    _ROWS + "for l,r in q:print({reduce:[{map} for x in {range}]})",
)
_NAMED = (
    _LOOP + "b=[{map} for x in {range}]\n print({reduce:b})",
    _ROWS + "for l,r in q:\n b=[{map} for x in {range}]\n print({reduce:b})",
    "a=[{map} for x in {ints}]\nfor _ in range(int(input())):\n l,r=map(int,input().split())\n"
    " b={range}\n print({reduce:b})",
)
_PREFIX_SUMS = (
    _A + "p=[0]\nfor x in a:p+=[p[-1]+({map})]\nfor _ in range(int(input())):\n"
    " l,r=map(int,input().split())\n print(p[r]-p[l-1])",
)


def _forms(codes: dict[str, Code]) -> Sequence[str]:
    named: tuple[str, ...] = _NAMED
    if "sorted" in codes["range"] or "open" in codes["ints"]:
        named = _NAMED[:2]
    if codes["range"] == _INCLUSIVE and codes["reduce"] == "sum(@)":
        named += _PREFIX_SUMS
    return usable_forms(codes, "reduce", _INLINE, named)


def _stdin(rng: random.Random, size: int, values: Sequence[int]) -> str:
    length, queries = (3, 2) if size <= 2 else (size + 2, min(size, 6))
    lines = [int_line(rng, length, values), f"{queries}\n"]
    for _ in range(queries):
        # indices avoid both ends, so 0-based and 1-based readings are both in range
        left = rng.randint(1, length - 1)
        lines.append(f"{left} {rng.randint(left, length - 1)}\n")
    return "".join(lines)


QUERIES = Family(
    name="queries",
    slots=(("range", _RANGES), ("map", MAPS), ("reduce", VALUES)),
    statement="Given integers, q and q queries l r, take those {range}, {map}, print the {reduce}.",
    forms=_forms,
    stdin=_stdin,
    sample_size=2,
    sizes=(3, 3, 4, 5, 6, 8, 10, 14),
)
