"""Normal forms, tokens and the diversity of programs."""

import random
import time
from itertools import combinations

import pytest

from analysis.programs import (
    MAX_CHARS,
    distinct_accepted,
    distinct_n,
    distinct_share,
    mean_edit_distance,
    normal_form,
    program_tokens,
)

SAME = {
    "names": ("n = int(input())\nprint(n)", "total = int(input())\nprint(total)"),
    "layout": ("print( (1+2) )", "print(1 + 2)  # three"),
    "quotes": ("print('a')", 'print("a")'),
    "docstrings": ('def f(x):\n "Doubles."\n return x', "def g(y):\n return y"),
    "string comments": ("'''first'''\nx = 1\n'''then'''\nprint(x)", "x = 1\nprint(x)"),
    "only a docstring": ("def f():\n    'nothing'", "def g():\n    pass"),
    "reuse": ("[x for x in d]\n[x for x in a]", "[x for x in d]\n[y for y in a]"),
    "parameters": ("def f(a): a()\ndef g(a): a()", "def f(a): a()\ndef g(b): b()"),
    "import aliases": ("import math\nprint(math.pi)", "import math as m\nprint(m.pi)"),
    "globals": ("def f():\n global n\n n = 1\nf()", "def h():\n global k\n k = 1\nh()"),
    "handlers": ("try: a\nexcept E as e: print(e)", "try: a\nexcept E as err: print(err)"),
    "match": ("match 1:\n case str(x): print(x)", "match 1:\n case str(y): print(y)"),
    "targets": ("for a, (b, *c) in d: [e] = f = a", "for h, (g, *f) in d: [c] = e = h"),
    "other targets": ("g: int = 1\nh += 1\ndel i", "b: int = 1\na += 1\ndel c"),
    "loops": ("while 0: a = 1\nelse: import c", "while 0: b = 1\nelse: import c as e"),
    "branches": ("if 0: a = 1\nelif 1: b = 1", "if 0: d = 1\nelif 1: f = 1"),
    "with": ("with x as a, y as (b, c): d = 1", "with x as p, y as (q, r): s = 1"),
    "except": ("try: a\nexcept E: e = 1", "try: a\nexcept E: t = 1"),
    "finally": ("try: a\nfinally: f = 1", "try: a\nfinally: u = 1"),
    "sequence": ("match x:\n case [1, *a] if a: b = 1", "match x:\n case [1, *p] if p: q = 1"),
    "mapping": ("match x:\n case {2: b, **c} as e: b", "match x:\n case {2: q, **r} as t: q"),
    "class pattern": ("match x:\n case K(3, k=d): d", "match x:\n case K(3, k=s): s"),
    "walrus": ("[y for x in d if (y := x)], y", "[b for a in d if (b := a)], b"),
    "methods": ("n = 2\nclass A:\n def f(s): return n", "m = 2\nclass A:\n def f(t): return m"),
}
DIFFERENT = {
    "builtins": ("print(max(1, 2))", "print(min(1, 2))"),
    "constants": ("print(1)", "print(2)"),
    "types of constants": ("print(1)", "print(1.0)"),
    "operators": ("x = 1\nprint(x + 1)", "x = 1\nprint(x - 1)"),
    "attributes": ("a = []\na.append(1)", "a = []\na.extend(1)"),
    "modules": ("import math as m\nm.floor(1)", "import numpy as m\nm.floor(1)"),
    "which variable": ("a = 1\nb = 2\nprint(a)", "a = 1\nb = 2\nprint(b)"),
    "structure": ("for i in range(3): print(i)", "i = 0\nwhile i < 3:\n    print(i)\n    i += 1"),
    "swapped arguments": ("a, b = 1, 2\nprint(a - b)", "a, b = 1, 2\nprint(b - a)"),
}


@pytest.mark.parametrize("name", [*SAME, *DIFFERENT])
def test_equal_programs_have_one_form_and_different_ones_do_not(name):
    first, second = map(normal_form, (SAME | DIFFERENT)[name])
    assert first is not None and second is not None
    assert (first == second) == (name in SAME)


def test_normal_form_is_a_fixed_point_and_still_runs():
    program = """import sys
from collections import Counter as C
def solve(words, top=2):
    'The most common.'
    best = [w for w, n in C(words).most_common(top)]
    return sorted(best, key=lambda w: -len(w))
print(" ".join(solve("a bb bb ccc ccc".split())))
"""
    form = normal_form(program)
    assert normal_form(form) == form
    for text in (program, form):
        lines = []
        exec(text, {"print": lines.append})
        assert lines == ["ccc bb"]


LONG = "print(1)\n" * (MAX_CHARS // 9)
BROKEN = ["print(", "x = \0", "(" * 5000, "-" * 100_000 + "1", LONG + "print(1)\n"]


@pytest.mark.parametrize("program", BROKEN)
def test_what_cannot_be_parsed_or_is_too_long_has_no_form(program):
    assert normal_form(program) is None
    assert normal_form(LONG) is not None


UNITS = ["(", "[", "not ", "-", "a.", "lambda:", "x=", "f(", "1+", "if 1:"]


@pytest.mark.parametrize("unit", UNITS)
def test_deep_nesting_takes_neither_long_nor_the_process(unit):
    begun = time.process_time()
    normal_form(unit * (MAX_CHARS // len(unit)) + "1")
    assert time.process_time() - begun < 3


def slow_edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        new = [i]
        for j, y in enumerate(b, 1):
            new.append(min(row[j] + 1, new[-1] + 1, row[j - 1] + (x != y)))
        row = new
    return row[-1]


def test_edit_distance_equals_the_textbook_table_over_the_longer_length():
    rng = random.Random(1)
    words = ["a", "b", "ab", "print", "é", "'x'"]
    for _ in range(300):
        a, b = (rng.choices(words, k=rng.randrange(1, 90)) for _ in range(2))
        expected = slow_edit_distance(a, b) / max(len(a), len(b))
        tokens = [program_tokens(" ".join(each)) for each in (a, b)]
        assert tokens == [tuple(a), tuple(b)]
        assert mean_edit_distance([" ".join(a), " ".join(b)]) == pytest.approx(expected)


def test_distinct_counts_equal_enumeration_of_all_draws():
    forms = list("aaabbcd")
    samples = [*forms, None, None]  # None: not accepted
    for k in range(1, len(samples) + 1):
        draws = [len(set(drawn) - {None}) for drawn in combinations(samples, k)]
        assert distinct_accepted(forms, 9, k) == pytest.approx(sum(draws) / len(draws))
    for m in range(1, 8):
        draws = [len(set(drawn)) for drawn in combinations(forms, m)]
        assert distinct_share(forms, m) == pytest.approx(sum(draws) / len(draws) / m)
    assert distinct_accepted([], 9, 5) == 0
    assert distinct_accepted(forms, 9, 1) == pytest.approx(len(forms) / 9)  # as pass@1


def test_distinct_n_counts_pairs_of_tokens():
    # a = 1 ; twice, then b = 1: pairs (a =) (= 1) (a =) (= 1) (b =) (= 1)
    assert distinct_n(["a = 1", "a=1  # again", "b = 1"], 2) == pytest.approx(3 / 6)
    assert distinct_n(["a", "", "b"], 2) is None


def test_tokens_keep_strings_and_operators_whole_and_survive_broken_text():
    assert program_tokens("x **= 2 # c\nprint('a # b', x//3, 1.5)") == (
        *("x", "**=", "2", "print", "(", "'a # b'", ",", "x", "//", "3", ",", "1.5", ")"),
    )
    assert program_tokens("print('open") == ("print", "(", "'open")


def test_mean_edit_distance_over_all_pairs():
    forms = ["a b c d", "a b c d", "a b x d", "p q"]
    assert mean_edit_distance(forms) == pytest.approx((0 + 1 / 4 + 1 + 1 / 4 + 1 + 1) / 6)
    assert mean_edit_distance(["a", "a"]) == 0.0
