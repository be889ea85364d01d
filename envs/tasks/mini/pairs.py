"""Something of every two neighbours in a line of integers, then filter and reduce."""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.tasks.mini.integers import LISTINGS, SIGNED_CONDITIONS, VALUES
from envs.tasks.mini.parts import Code, Family, Part, int_line, simple_enough

_OPERATIONS = (
    Part("sum", 0, "sum", ("p+q", "q+p"), ("p*q", "q-p")),
    Part("difference", 0, "second minus first", ("q-p", "-p+q"), ("p-q", "abs(p-q)")),
    Part("maximum", 1, "larger", ("max(p,q)", "max(q,p)"), ("min(p,q)", "p+q")),
    Part("product", 1, "product", ("p*q", "q*p"), ("p+q", "p**2")),
    Part("gap", 1, "distance", ("abs(p-q)", "abs(q-p)"), ("p-q", "q-p")),
    Part("minimum", 2, "smaller", ("min(p,q)", "min(q,p)"), ("max(p,q)", "p")),
    Part("xor", 2, "xor", ("p^q", "q^p"), ("p|q", "p&q")),
    Part("squares", 2, "sum of squares", ("p*p+q*q", "p**2+q**2"), ("(p+q)**2", "p+q")),
)
_INLINE = (
    "a={list}\nb=[{pair} for p,q in zip(a,a[1:])]\nprint({reduce:[x for x in b if {cond}]})",
    "a={list}\nb=map(lambda p,q:{pair},a,a[1:])\nprint({reduce:[x for x in b if {cond}]})",
)
_NAMED = (
    "a={list}\nb=[{pair} for p,q in zip(a,a[1:])]\nb=[x for x in b if {cond}]\nprint({reduce:b})",
    "a={list}\nb=[]\nfor p,q in zip(a,a[1:]):\n x={pair}\n if {cond}:b+=[x]\nprint({reduce:b})",
    "p,*a={list}\nb=[]\nfor q in a:\n x={pair}\n if {cond}:b.append(x)\n p=q\nprint({reduce:b})",
)


def _forms(codes: dict[str, Code]) -> Sequence[str]:
    return simple_enough(codes, "reduce", _INLINE, _NAMED)


def _stdin(rng: random.Random, size: int, values: Sequence[int]) -> str:
    return int_line(rng, size + 1, values)


PAIRS = Family(
    name="pairs",
    slots=(("pair", _OPERATIONS), ("cond", SIGNED_CONDITIONS), ("reduce", VALUES + LISTINGS)),
    statement="Given integers, take the {pair} of each two neighbours, keep those {cond},"
    " print the {reduce}.",
    forms=_forms,
    stdin=_stdin,
    sample_size=4,
)
