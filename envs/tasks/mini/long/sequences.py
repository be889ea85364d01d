"""Families over lines of integers: stages, a scan with three branches, and pairs of two lines."""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.tasks.mini.composition import Code, Family, int_line
from envs.tasks.mini.long.parts import (
    EACH,
    FILTERS,
    OTHER_FILTERS,
    OTHER_UPDATES,
    RESULTS,
    TESTS,
    TIERS,
    UPDATES,
    named,
)
from envs.tasks.mini.sequences import PAIRS

_SIZES = (5, 6, 7, 8, 9, 10, 12, 14, 16, 18)
_PAIRS = named(dict(PAIRS.slots)["pair"], "sum", "maximum", "gap", "minimum")

# Filter and map, combine neighbours, then scan.

_STAGES_FORMS = tuple(
    first + pairs + scan
    for first in (
        "b=[]\nfor x in {ints}:\n if {cond}:\n  b.append({map})\n",
        "b=[]\na={ints}\nfor x in a:\n if {cond}:\n  y={map}\n  b+=[y]\n",
    )
    for pairs in (
        "c=[{pair} for p,q in zip(b,b[1:])]\n",
        "c=[]\nfor p,q in zip(b,b[1:]):\n c.append({pair})\n",
    )
    for scan in (
        "x=0\nfor a in c:\n if {test:a}:\n  x={then:a}\n else:\n  x={other:a}\nprint(x,{reduce:c})",
        "x=0\nfor a in c:\n y={other:a}\n if {test:a}:\n  y={then:a}\n x=y\nprint(x,{reduce:c})",
    )
)


def _stages_forms(codes: dict[str, Code]) -> Sequence[str]:
    return _STAGES_FORMS


STAGES = Family(
    name="stages",
    slots=(
        ("cond", FILTERS),
        ("map", EACH),
        ("pair", _PAIRS),
        ("test", TESTS),
        ("then", UPDATES),
        ("other", OTHER_UPDATES),
        ("reduce", RESULTS),
    ),
    statement="Given integers, keep those {cond}, {map}, take the {pair} of each two neighbours. x"
    " is 0. For each a of these: if a is {test}, {then}, else {other}. Print x and the {reduce}.",
    forms=_stages_forms,
    stdin=int_line,
    sample_size=5,
    sizes=_SIZES,
    **TIERS,
)


# A counter that each integer changes in one of three ways, and its history.

_LAST_UPDATES = named(UPDATES, "add", "subtract", "turn")
_BRANCHES_FORMS = tuple(
    "x=0\nb=[]\nv={list}\n" + scan + keep
    for scan in (
        "for a in v:\n if {first:a}:\n  x={then:a}\n elif {second:a}:\n  x={middle:a}\n else:\n"
        "  x={other:a}\n",
        "for a in v:\n if {first:a}:\n  x={then:a}\n else:\n  if {second:a}:\n   x={middle:a}\n"
        "  else:\n   x={other:a}\n",
        "for a in v:\n y={other:a}\n if {first:a}:\n  y={then:a}\n elif {second:a}:\n"
        "  y={middle:a}\n x=y\n",
    )
    for keep in (
        " if {test}:\n  b.append(x)\nprint(x,{reduce:b})",
        " b.append(x)\nb=[x for x in b if {test}]\nprint(x,{reduce:b})",
    )
)


def _branches_forms(codes: dict[str, Code]) -> Sequence[str]:
    return _BRANCHES_FORMS


BRANCHES = Family(
    name="branches",
    slots=(
        ("first", FILTERS),
        ("then", UPDATES),
        ("second", OTHER_FILTERS),
        ("middle", OTHER_UPDATES),
        ("other", _LAST_UPDATES),
        ("test", TESTS),
        ("reduce", RESULTS),
    ),
    statement="x is 0. For each given integer a: if a is {first}, {then}, else if a is {second},"
    " {middle}, else {other}. Print x and, of its values {test}, the {reduce}.",
    forms=_branches_forms,
    stdin=int_line,
    sample_size=5,
    sizes=_SIZES,
    **TIERS,
)


# All pairs of two lines, in nested loops.

_PRODUCTS_FORMS = (
    "a={list}\nc={list}\nb=[]\nfor p in a:\n if {first:p}:\n  for q in c:\n   if {second:q}:\n"
    "    x={pair}\n    if {test}:\n     b.append({map})\nprint(len(b),{reduce:b})",
    "a={list}\nc={list}\nb=[]\nfor p in a:\n for q in c:\n  if {first:p} and {second:q}:\n"
    "   x={pair}\n   if {test}:\n    x={map}\n    b.append(x)\nprint(len(b),{reduce:b})",
    "a={list}\nc={list}\na=[p for p in a if {first:p}]\nc=[q for q in c if {second:q}]\nb=[]\n"
    "for p in a:\n for q in c:\n  x={pair}\n  if {test}:\n   b.append({map})\n"
    "print(len(b),{reduce:b})",
    "a={list}\nc={list}\nc=[q for q in c if {second:q}]\nb=[]\nfor p in a:\n if {first:p}:\n"
    "  for q in c:\n   x={pair}\n   if {test}:\n    b+=[{map}]\nprint(len(b),{reduce:b})",
)


def _products_forms(codes: dict[str, Code]) -> Sequence[str]:
    return _PRODUCTS_FORMS


def _products_stdin(rng: random.Random, size: int, values: Sequence[int]) -> str:
    return int_line(rng, size, values) + int_line(rng, size, values)


PRODUCTS = Family(
    name="products",
    slots=(
        ("first", FILTERS),
        ("second", OTHER_FILTERS),
        ("pair", _PAIRS),
        ("test", TESTS),
        ("map", EACH),
        ("reduce", RESULTS),
    ),
    statement="Given two lines of integers, take the {pair} of each p of the first that is {first}"
    " and each q of the second that is {second}. Keep those {test}, {map}, print their number and"
    " {reduce}.",
    forms=_products_forms,
    stdin=_products_stdin,
    sample_size=3,
    sizes=(3, 3, 4, 4, 5, 6, 7, 8, 9, 10),
    **TIERS,
)
