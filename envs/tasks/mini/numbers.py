"""Family of number theory: divisors, digits or primes of n, filtered and reduced."""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.tasks.mini.composition import Code, Family, Part, usable_forms
from envs.tasks.mini.integers import CONDITIONS, LISTINGS, VALUES

_SOURCES = (
    Part(
        "upto",
        0,
        "numbers from 1 to n",
        ("range(1,n+1)", "range(n+1)[1:]"),
        ("range(1,n)", "range(n)"),
    ),
    Part(
        "digits",
        0,
        "digits of n",
        ("map(int,str(n))", "[int(d) for d in str(n)]"),
        ("range(n)", "[n]"),
    ),
    Part(
        "divisors",
        1,
        "divisors of n",
        ("[d for d in range(1,n+1) if n%d==0]", "[d for d in range(1,n+1) if n%d<1]"),
        ("[d for d in range(1,n) if n%d==0]", "[d for d in range(1,n+1) if n%d]"),
    ),
    Part(
        "multiples",
        1,
        "multiples of # up to n",
        ("range(#,n+1,#)", "[m for m in range(1,n+1) if m%#==0]"),
        ("range(#,n,#)", "range(1,n+1,#)"),
        tuple(range(2, 6)),
    ),
    Part(
        "squares",
        2,
        "squares up to n",
        ("[i*i for i in range(1,n+1) if i*i<=n]", "[i**2 for i in range(1,n+1) if i**2<=n]"),
        ("[i*i for i in range(1,n+1)]", "[i*i for i in range(n)]"),
    ),
    Part(
        "primes",
        2,
        "primes up to n",
        (
            "[p for p in range(2,n+1) if all(p%d for d in range(2,p))]",
            "[p for p in range(2,n+1) if all(p%d>0 for d in range(2,p))]",
        ),
        ("[p for p in range(2,n+1) if p%2]", "range(2,n+1)"),
    ),
    Part(
        "bits",
        2,
        "bits of n",
        ("map(int,bin(n)[2:])", "map(int,f'{n:b}')"),
        ("map(int,str(n))", "range(n)"),
    ),
    Part(
        "remainders",
        2,
        "remainders of n by 1 to n",
        ("[n%d for d in range(1,n+1)]", "[n%(d+1) for d in range(n)]"),
        ("[n//d for d in range(1,n+1)]", "[d%n for d in range(1,n+1)]"),
    ),
)
_READ = "n=int(input())\n"
_INLINE = (
    _READ + "print({reduce:[x for x in {source} if {cond}]})",
    _READ + "a={source}\nprint({reduce:[x for x in a if {cond}]})",
    _READ + "a={source}\nprint({reduce:[*filter(lambda x:{cond},a)]})",
)
_NAMED = (
    _READ + "b=[x for x in {source} if {cond}]\nprint({reduce:b})",
    _READ + "b=[]\nfor x in {source}:\n if {cond}:b.append(x)\nprint({reduce:b})",
    _READ + "b=[]\nfor x in {source}:\n if {cond}:b+=[x]\nprint({reduce:b})",
)


def _forms(codes: dict[str, Code]) -> Sequence[str]:
    return usable_forms(codes, "reduce", _INLINE, _NAMED)


def _stdin(rng: random.Random, size: int, values: Sequence[int]) -> str:
    n = rng.choice((6, 12, 16, 24, 30, 36, 48, 60, 72, 90, 120)) if rng.random() < 0.5 else None
    return f"{n or rng.randint(1, 10 * size)}\n"


NUMBERS = Family(
    name="numbers",
    slots=(("source", _SOURCES), ("cond", CONDITIONS), ("reduce", VALUES + LISTINGS)),
    statement="Given n, take the {source}, keep those {cond}, print the {reduce}.",
    forms=_forms,
    stdin=_stdin,
    sample_size=3,
    sizes=(1, 2, 3, 5, 7, 9, 12, 20),
)
