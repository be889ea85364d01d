"""Families over one line of integers: filter-map-reduce, neighbours, and a simulated counter."""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.tasks.mini.composition import Code, Family, Part, int_line, usable_forms
from envs.tasks.mini.integers import CONDITIONS, LISTINGS, MAPS, SIGNED_CONDITIONS, VALUES

# Filter, map and reduce.

_FOLD_INLINE = (
    "print({reduce:[{map} for x in {ints} if {cond}]})",
    "a={ints}\nprint({reduce:[{map} for x in a if {cond}]})",
    "a=[x for x in {ints} if {cond}]\nprint({reduce:[{map} for x in a]})",
    "a=filter(lambda x:{cond},{ints})\nprint({reduce:[{map} for x in a]})",
)
_FOLD_NAMED = (
    "b=[{map} for x in {ints} if {cond}]\nprint({reduce:b})",
    "b=[]\nfor x in {ints}:\n if {cond}:b.append({map})\nprint({reduce:b})",
    "b=[]\nfor x in {ints}:\n if {cond}:b+=[{map}]\nprint({reduce:b})",
)


def _fold_forms(codes: dict[str, Code]) -> Sequence[str]:
    return usable_forms(codes, "reduce", _FOLD_INLINE, _FOLD_NAMED)


FOLD = Family(
    name="fold",
    slots=(("cond", CONDITIONS), ("map", MAPS), ("reduce", VALUES + LISTINGS[1:])),
    statement="Given integers, keep those {cond}, {map}, print the {reduce}.",
    forms=_fold_forms,
    stdin=int_line,
)


# Combine each two neighbours, then filter and reduce.

_PAIRS_OPERATIONS = (
    Part("sum", 0, "sum", ("p+q", "q+p"), ("p*q", "q-p")),
    Part("difference", 0, "second minus first", ("q-p", "-p+q"), ("p-q", "abs(p-q)")),
    Part("maximum", 1, "larger", ("max(p,q)", "max(q,p)"), ("min(p,q)", "p+q")),
    Part("product", 1, "product", ("p*q", "q*p"), ("p+q", "p**2")),
    Part("gap", 1, "distance", ("abs(p-q)", "abs(q-p)"), ("p-q", "q-p")),
    Part("minimum", 2, "smaller", ("min(p,q)", "min(q,p)"), ("max(p,q)", "p")),
    Part("xor", 2, "xor", ("p^q", "q^p"), ("p|q", "p&q")),
    Part("squares", 2, "sum of squares", ("p*p+q*q", "p**2+q**2"), ("(p+q)**2", "p+q")),
)
_PAIRS_INLINE = (
    "a={list}\nb=[{pair} for p,q in zip(a,a[1:])]\nprint({reduce:[x for x in b if {cond}]})",
    "a={list}\nb=map(lambda p,q:{pair},a,a[1:])\nprint({reduce:[x for x in b if {cond}]})",
)
_PAIRS_NAMED = (
    "a={list}\nb=[{pair} for p,q in zip(a,a[1:])]\nb=[x for x in b if {cond}]\nprint({reduce:b})",
    "a={list}\nb=[]\nfor p,q in zip(a,a[1:]):\n x={pair}\n if {cond}:b+=[x]\nprint({reduce:b})",
    "p,*a={list}\nb=[]\nfor q in a:\n x={pair}\n if {cond}:b.append(x)\n p=q\nprint({reduce:b})",
)


def _pairs_forms(codes: dict[str, Code]) -> Sequence[str]:
    return usable_forms(codes, "reduce", _PAIRS_INLINE, _PAIRS_NAMED)


def _pairs_stdin(rng: random.Random, size: int, values: Sequence[int]) -> str:
    return int_line(rng, size + 1, values)


PAIRS = Family(
    name="pairs",
    slots=(("pair", _PAIRS_OPERATIONS), ("cond", SIGNED_CONDITIONS), ("reduce", VALUES + LISTINGS)),
    statement="Given integers, take the {pair} of each two neighbours, keep those {cond},"
    " print the {reduce}.",
    forms=_pairs_forms,
    stdin=_pairs_stdin,
    sample_size=4,
)


# A counter that each integer changes in one of two ways.

_SMALL = tuple(range(2, 6))
_UPDATES = (
    Part("add", 0, "add a to x", ("x+@", "@+x"), ("x-@", "x*@")),
    Part("increment", 0, "increment x", ("x+1", "1+x"), ("x-1", "1")),
    Part("double", 0, "double x", ("x*2", "2*x", "x+x"), ("x**2", "x+2")),
    Part("subtract", 1, "subtract a from x", ("x-@", "-@+x"), ("@-x", "x+@")),
    Part("set", 1, "set x to a", ("@", "0+@"), ("x+@", "x-@")),
    Part("raise", 1, "raise x by #", ("x+#", "#+x"), ("x*#", "x-#"), _SMALL),
    Part("multiply", 1, "multiply x by #", ("x*#", "#*x"), ("x+#", "x**2"), _SMALL[1:]),
    Part(
        "maximum", 2, "set x to the larger of x and a", ("max(x,@)", "max(@,x)"), ("min(x,@)", "@")
    ),
    Part("halve", 2, "halve x", ("x//2", "x>>1"), ("x/2", "x%2")),
    Part("negate", 2, "negate x", ("-x", "0-x"), ("abs(x)", "x-1")),
    Part("xor", 2, "xor a into x", ("x^@", "@^x"), ("x|@", "x&@")),
    Part("turn", 2, "set x to a minus x", ("@-x", "-x+@"), ("x-@", "@")),
    Part("reset", 2, "reset x", ("0", "x*0"), ("1", "x")),
)
_SIMULATION_FORMS = (
    "x=0\nfor a in {ints}:\n if {cond:a}:x={then:a}\n else:x={other:a}\nprint(x)",
    "x=0\nfor a in {ints}:x={then:a} if {cond:a} else {other:a}\nprint(x)",
    "x=0\nfor a in {ints}:\n y={other:a}\n if {cond:a}:y={then:a}\n x=y\nprint(x)",
    "f=lambda x,a:{then:a} if {cond:a} else {other:a}\nx=0\nfor a in {ints}:x=f(x,a)\nprint(x)",
    "x=0\nv={list}\nwhile v:\n a=v.pop(0)\n if {cond:a}:x={then:a}\n else:x={other:a}\nprint(x)",
)


def _simulation_forms(codes: dict[str, Code]) -> Sequence[str]:
    return _SIMULATION_FORMS


SIMULATION = Family(
    name="simulation",
    slots=(("cond", CONDITIONS), ("then", _UPDATES), ("other", _UPDATES)),
    statement="x is 0. For each given integer a: if a is {cond}, {then}, else {other}. Print x.",
    forms=_simulation_forms,
    stdin=int_line,
)
