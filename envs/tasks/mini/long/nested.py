"""Families of nested loops: grids, queries, a scan for each number, letters of each word."""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.tasks.mini.composition import Code, Family, Part, int_line, word
from envs.tasks.mini.grids import GRIDS
from envs.tasks.mini.long.parts import (
    EACH,
    FILTERS,
    OTHER_EACH,
    OTHER_UPDATES,
    RESULTS,
    TESTS,
    TIERS,
    TOTALS,
    UPDATES,
    named,
)
from envs.tasks.mini.numbers import NUMBERS
from envs.tasks.mini.queries import QUERIES
from envs.tasks.mini.strings import STRINGS

# Change the cells of a grid in one of two ways, reduce every line, filter and reduce the results.

_CHANGES = (
    "  if {cond}:\n   c.append({map})\n  else:\n   c.append({other})\n",
    "  y={other}\n  if {cond}:\n   y={map}\n  c+=[y]\n",
)
_CELLS_FORMS = tuple(
    form.replace("CHANGE", change)
    for change in _CHANGES
    for form in (
        "g={grid}\nb=[]\nfor r in {lines}:\n c=[]\n for x in r:\nCHANGE y={inner:c}\n"
        " if {test:y}:\n  b.append(y)\nprint(len(b),{outer:b})",
        "g={grid}\nb=[]\nfor r in {lines}:\n c=[]\n for x in r:\nCHANGE b.append({inner:c})\n"
        "b=[y for y in b if {test:y}]\nprint(len(b),{outer:b})",
        "def f(r):\n c=[]\n for x in r:\nCHANGE return {inner:c}\n"
        "g={grid}\nb=[f(r) for r in {lines}]\nb=[y for y in b if {test:y}]\n"
        "print(len(b),{outer:b})",
    )
)


def _cells_forms(codes: dict[str, Code]) -> Sequence[str]:
    return _CELLS_FORMS


CELLS = Family(
    name="cells",
    slots=(
        ("lines", dict(GRIDS.slots)["lines"][:5]),
        ("cond", FILTERS),
        ("map", EACH),
        ("other", OTHER_EACH),
        ("inner", TOTALS),
        ("test", TESTS),
        ("outer", RESULTS),
    ),
    statement="Given a grid, of the cells {cond} {map}, of the others {other}. Take the {inner} of"
    " each {lines}, keep those {test}, print their number and {outer}.",
    forms=_cells_forms,
    stdin=GRIDS.stdin,
    sample_size=2,
    sizes=(3, 4, 5, 5, 6, 6, 7, 7, 8, 8),
    **TIERS,
)


# Queries with one of two answers.

_QUERY = "a={list}\nfor _ in range(int(input())):\n l,r=map(int,input().split())\n c=[]\n"
_INTERVALS_FORMS = tuple(
    _QUERY + filtered + answer
    for filtered in (
        " for x in {range}:\n  if {cond}:\n   c.append({map})\n",
        " for x in {range}:\n  if {cond}:\n   y={map}\n   c+=[y]\n",
    )
    for answer in (
        " s=sum(c)\n if {test:s}:\n  print({then:c})\n else:\n  print({other:c})",
        " s=sum(c)\n y={other:c}\n if {test:s}:\n  y={then:c}\n print(y)",
    )
)


def _intervals_forms(codes: dict[str, Code]) -> Sequence[str]:
    return _INTERVALS_FORMS


INTERVALS = Family(
    name="intervals",
    slots=(
        ("range", dict(QUERIES.slots)["range"][:6]),
        ("cond", FILTERS),
        ("map", EACH),
        ("test", TESTS),
        ("then", TOTALS),
        ("other", TOTALS),
    ),
    statement="Given integers, q and q queries l r, of those {range} keep those {cond}, {map}. If"
    " their sum is {test}, print the {then}, else the {other}.",
    forms=_intervals_forms,
    stdin=QUERIES.stdin,
    sample_size=2,
    sizes=(3, 4, 5, 6, 7, 8, 9, 10, 12, 14),
    **TIERS,
)


# A scan of what belongs to each number.

_SOURCES = named(dict(NUMBERS.slots)["source"], "upto", "digits", "divisors", "multiples", "bits")
_FACTORS_FORMS = (
    "b=[]\nv={list}\nfor n in v:\n x=0\n for a in {source}:\n  if {cond:a}:\n   x={then:a}\n"
    "  else:\n   x={other:a}\n if {test}:\n  b.append(x)\nprint(len(b),{reduce:b})",
    "b=[]\nv={list}\nfor n in v:\n x=0\n for a in {source}:\n  y={other:a}\n  if {cond:a}:\n"
    "   y={then:a}\n  x=y\n if {test}:\n  b+=[x]\nprint(len(b),{reduce:b})",
    "def f(n):\n x=0\n for a in {source}:\n  if {cond:a}:\n   x={then:a}\n  else:\n"
    "   x={other:a}\n return x\nb=[]\nv={list}\nfor n in v:\n x=f(n)\n if {test}:\n  b.append(x)\n"
    "print(len(b),{reduce:b})",
    "b=[]\nv={list}\nfor n in v:\n x=0\n for a in {source}:\n  if {cond:a}:\n   x={then:a}\n"
    "  else:\n   x={other:a}\n b.append(x)\nb=[x for x in b if {test}]\nprint(len(b),{reduce:b})",
)


def _factors_forms(codes: dict[str, Code]) -> Sequence[str]:
    return _FACTORS_FORMS


FACTORS = Family(
    name="factors",
    slots=(
        ("source", _SOURCES),
        ("cond", FILTERS),
        ("then", UPDATES),
        ("other", OTHER_UPDATES),
        ("test", TESTS),
        ("reduce", RESULTS),
    ),
    statement="For each given n: x is 0, and for each a of the {source}: if a is {cond}, {then},"
    " else {other}. Keep the x that are {test}, print their number and {reduce}.",
    forms=_factors_forms,
    stdin=int_line,
    sample_size=4,
    sizes=(4, 5, 6, 7, 8, 9, 10, 11, 12, 14),
    **TIERS,
)


# Rewrite the letters of each word, then choose among the words.

_SELECTIONS = named(
    dict(STRINGS.slots)["select"], "lower", "digit", "letter", "other", "after_m", "not_first"
)
_REWRITES = named(
    dict(STRINGS.slots)["rewrite"], "upper", "twice", "swap", "dash", "next", "thrice"
)
_FINISHES = (
    Part("reverse", 0, "reverse", ("t[::-1]", "''.join(reversed(t))"), ("t", "t[1:]")),
    Part("shorten", 0, "drop the first letter of", ("t[1:]",), ("t[:-1]", "t")),
    Part("sort", 1, "sort", ("''.join(sorted(t))",), ("t", "''.join(sorted(t)[::-1])")),
    Part("trim", 1, "drop the last letter of", ("t[:-1]",), ("t[1:]", "t")),
    Part("mirror", 2, "mirror", ("t+t[::-1]",), ("t[::-1]", "t[::-1]+t")),
    Part(
        "unique",
        2,
        "drop repeats of",
        ("''.join(dict.fromkeys(t))",),
        ("t", "''.join(sorted(set(t)))"),
    ),
)
_LENGTHS = (2, 3, 4)
_CHOICES = (
    Part(
        "longer", 0, "longer than #", ("len(@)>#", "#<len(@)"), ("len(@)<#", "len(@)>=#"), _LENGTHS
    ),
    Part("even", 0, "of even length", ("len(@)%2==0", "len(@)%2<1"), ("len(@)%2", "len(@)%2>0")),
    Part(
        "shorter",
        1,
        "shorter than #",
        ("len(@)<#", "#>len(@)"),
        ("len(@)>#", "len(@)<=#"),
        _LENGTHS,
    ),
    Part("odd", 1, "of odd length", ("len(@)%2", "len(@)%2==1"), ("len(@)%2<1", "len(@)%2==0")),
    Part(
        "digit", 2, "ending in a digit", ("@[-1:].isdigit()",), ("@.isdigit()", "@[:1].isdigit()")
    ),
)
_PRINTS = (
    Part("all", 0, "all", ("*@",), ("@[0]", "len(@)")),
    Part("first", 0, "the first", ("@[0]",), ("@[-1]", "*@")),
    Part("backwards", 1, "them from last to first", ("*@[::-1]",), ("*@", "*sorted(@)")),
    Part("sorted", 1, "them sorted", ("*sorted(@)",), ("*@", "*@[::-1]")),
    Part(
        "longest", 2, "the first of the longest", ("max(@,key=len)",), ("max(@)", "min(@,key=len)")
    ),
    Part("length", 2, "their total length", ("len(''.join(@))",), ("len(@)", "len(''.join(@))+1")),
)
_LETTERS = " for c in s:\n  if {select:c}:\n   t+={rewrite:c}\n"
_WORDS_FORMS = (
    "b=[]\nv={word}.split()\nfor s in v:\n t=''\n" + _LETTERS + " t={finish:t}\n if {choice:t}:\n"
    "  b.append(t)\nprint(len(b),{output:b})",
    "b=[]\nv={word}.split()\nfor s in v:\n t=[]\n for c in s:\n  if {select:c}:\n"
    "   t.append({rewrite:c})\n t=''.join(t)\n t={finish:t}\n if {choice:t}:\n  b+=[t]\n"
    "print(len(b),{output:b})",
    "def f(s):\n t=''\n" + _LETTERS + " return {finish:t}\nb=[]\nv={word}.split()\nfor s in v:\n"
    " t=f(s)\n if {choice:t}:\n  b.append(t)\nprint(len(b),{output:b})",
    "b=[]\nv={word}.split()\nfor s in v:\n t=''\n" + _LETTERS + " b.append({finish:t})\n"
    "b=[t for t in b if {choice:t}]\nprint(len(b),{output:b})",
)


def _words_forms(codes: dict[str, Code]) -> Sequence[str]:
    return _WORDS_FORMS


def _words_stdin(rng: random.Random, size: int, values: Sequence[int]) -> str:
    return " ".join(word(rng, rng.randint(2, 8)) for _ in range(size)) + "\n"


WORDS = Family(
    name="words",
    slots=(
        ("select", _SELECTIONS),
        ("rewrite", _REWRITES),
        ("finish", _FINISHES),
        ("choice", _CHOICES),
        ("output", _PRINTS),
    ),
    statement="Given words, of each keep the characters {select}, {rewrite}, then {finish} the"
    " word. Keep the words {choice}, print their number and {output}.",
    forms=_words_forms,
    stdin=_words_stdin,
    sample_size=3,
    sizes=(3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
    **TIERS,
)
