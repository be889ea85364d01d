"""Family of grids: reduce every row or column, then reduce the results."""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.tasks.mini.composition import Code, Family, Part, int_line, usable_forms
from envs.tasks.mini.integers import VALUES

_LINES = (
    Part("rows", 0, "row", ("g", "g[:]"), ("zip(*g)", "g[1:]")),
    Part("columns", 0, "column", ("zip(*g)", "[*zip(*g)]"), ("g", "zip(g)")),
    Part("lower_rows", 1, "row but the first", ("g[1:]",), ("g[:-1]", "g")),
    Part("upper_rows", 1, "row but the last", ("g[:-1]",), ("g[1:]", "g")),
    Part("alternate_rows", 2, "second row", ("g[1::2]",), ("g[::2]", "g[1:2]")),
    Part(
        "left_columns",
        2,
        "column but the last",
        ("[*zip(*g)][:-1]", "list(zip(*g))[:-1]"),
        ("[*zip(*g)][1:]", "zip(*g)"),
    ),
    Part(
        "right_columns",
        2,
        "column but the first",
        ("[*zip(*g)][1:]", "list(zip(*g))[1:]"),
        ("[*zip(*g)][:-1]", "zip(*g)"),
    ),
)
_COUNTS = (
    Part(
        "evens",
        1,
        "number of evens",
        ("sum(x%2<1 for x in @)", "sum(x%2==0 for x in @)"),
        ("sum(x%2 for x in @)",),
    ),
    Part(
        "odds",
        1,
        "number of odds",
        ("sum(x%2 for x in @)", "sum(x%2>0 for x in @)"),
        ("sum(x%2<1 for x in @)",),
    ),
    Part(
        "zeros",
        2,
        "number of zeros",
        ("[*@].count(0)", "sum(x==0 for x in @)"),
        ("len(@)", "sum(x>0 for x in @)"),
    ),
)
_INLINE = (
    "g={grid}\nprint({outer:[{inner:r} for r in {lines}]})",
    "g={grid}\nb=map(lambda r:{inner:r},{lines})\nprint({outer:[*b]})",
)
_NAMED = (
    "g={grid}\nb=[{inner:r} for r in {lines}]\nprint({outer:b})",
    "g={grid}\nb=[]\nfor r in {lines}:b.append({inner:r})\nprint({outer:b})",
    "g={grid}\nb=[]\nfor r in {lines}:b+=[{inner:r}]\nprint({outer:b})",
)


def _forms(codes: dict[str, Code]) -> Sequence[str]:
    return usable_forms(codes, "outer", _INLINE, _NAMED)


def _stdin(rng: random.Random, size: int, values: Sequence[int]) -> str:
    rows, columns = (3, 3) if size <= 2 else (rng.randint(3, size + 2), rng.randint(3, size + 2))
    return "".join(int_line(rng, columns, (*values, 0)) for _ in range(rows))


GRIDS = Family(
    name="grids",
    slots=(("lines", _LINES), ("inner", VALUES + _COUNTS), ("outer", VALUES)),
    statement="Given a grid, take the {inner} of each {lines}, print the {outer} of these.",
    forms=_forms,
    stdin=_stdin,
    sample_size=2,
    sizes=(1, 2, 3, 3, 4, 5, 6, 7),
)
