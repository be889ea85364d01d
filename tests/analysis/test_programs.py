"""Normal forms, tokens and the diversity of programs."""

import random
import textwrap
import time
from itertools import combinations

import pytest

from analysis.programs import (
    MAX_CHARS,
    distinct_accepted,
    distinct_n,
    distinct_ratio,
    distinct_share,
    mean_edit_distance,
    normal_form,
    program_tokens,
)

SAME = {
    "names": ("n = int(input())\nprint(n)", "total = int(input())\nprint(total)"),
    "layout": ("print( (1+2) )", "print(1 + 2)  # three"),
    "quotes": ("print('a')", 'print("a")'),
    "docstrings": (
        'def f(x):\n    """Doubles."""\n    return 2 * x\nprint(f(1))',
        "def g(y):\n    return 2 * y\nprint(g(1))",
    ),
    "string comments": ("'''first'''\nx = 1\n'''then'''\nprint(x)", "x = 1\nprint(x)"),
    "only a docstring": ("def f():\n    'nothing'", "def g():\n    pass"),
    "reuse across scopes": (
        "a = [int(x) for x in input().split()]\nprint(sum(x for x in a))",
        "a = [int(x) for x in input().split()]\nprint(sum(y for y in a))",
    ),
    "parameters": (
        "def f(a):\n    return a\ndef g(a):\n    return a",
        "def f(a):\n    return a\ndef g(b):\n    return b",
    ),
    "import aliases": (
        "import math\nprint(math.sqrt(4))",
        "import math as m\nprint(m.sqrt(4))",
    ),
    "globals": (
        "def f():\n    global n\n    n = 1\nf()\nprint(n)",
        "def h():\n    global k\n    k = 1\nh()\nprint(k)",
    ),
    "handlers": (
        "try:\n    pass\nexcept ValueError as e:\n    print(e)",
        "try:\n    pass\nexcept ValueError as err:\n    print(err)",
    ),
    "match": (
        "match input():\n    case str(x):\n        print(x)",
        "match input():\n    case str(line):\n        print(line)",
    ),
    "targets": (
        "for a, (b, *c) in d:\n    [e] = f = a, b, c\n    g: int = 1\n    h += 1\n    del i",
        "for h, (g, *f) in d:\n    [c] = e = h, g, f\n    b: int = 1\n    a += 1\n    del i",
    ),
    "blocks": (
        "while 0:\n    if 0:\n        a = 1\n    elif 1:\n        b = 1\nelse:\n    import c",
        "while 0:\n    if 0:\n        d = 1\n    elif 1:\n        f = 1\nelse:\n    import c as e",
    ),
    "with and try": (
        "try:\n    with x as a, y as (b, c): d = 1\nexcept E:\n    e = 1\nfinally:\n    f = 1",
        "try:\n    with x as p, y as (q, r): s = 1\nexcept E:\n    t = 1\nfinally:\n    u = 1",
    ),
    "patterns": (
        "match x:\n    case [1, *a] | {2: b, **c} | K(3, k=d) as e if f:\n        g = 1",
        "match x:\n    case [1, *p] | {2: q, **r} | K(3, k=s) as t if f:\n        u = 1",
    ),
    "walrus": (
        "print([y for x in range(3) if (y := x)], y)",
        "print([b for a in range(3) if (b := a)], b)",
    ),
    "methods see globals": (
        "n = 2\nclass A:\n    def f(self):\n        return n",
        "m = 2\nclass A:\n    def f(this):\n        return m",
    ),
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


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME)
def test_equal_programs_have_one_form(pair):
    first, second = map(normal_form, pair)
    assert first is not None
    assert first == second


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_different_programs_keep_different_forms(pair):
    first, second = map(normal_form, pair)
    assert first is not None
    assert second is not None
    assert first != second


def test_normal_form_is_a_fixed_point_and_still_runs():
    program = textwrap.dedent(
        """
        import sys
        from collections import Counter as C
        def solve(words, top=2):
            'The most common.'
            best = [w for w, n in C(words).most_common(top)]
            return sorted(best, key=lambda w: -len(w))
        print(" ".join(solve("a bb bb ccc ccc".split())))
        """
    )
    form = normal_form(program)
    assert normal_form(form) == form
    outputs = []
    for text in (program, form):
        lines = []
        exec(text, {"print": lines.append})
        outputs.append(lines)
    assert outputs[0] == outputs[1] == ["ccc bb"]


@pytest.mark.parametrize("program", ["print(", "x = \0", "(" * 5000, "-" * 100_000 + "1"])
def test_what_cannot_be_parsed_has_no_form(program):
    assert normal_form(program) is None


def test_a_text_too_long_to_be_a_program_is_not_parsed():
    line = "print(1)\n"
    assert normal_form(line * (MAX_CHARS // len(line))) is not None
    assert normal_form(line * (MAX_CHARS // len(line) + 1)) is None


@pytest.mark.parametrize(
    "unit", ["(", "[", "not ", "-", "a.", "lambda:", "x=", "f(", "1+", "if 1:"]
)
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


def test_distinct_share_equals_enumeration_of_all_draws():
    forms = list("aaabbcd")
    for m in range(1, 8):
        draws = [len(set(drawn)) for drawn in combinations(forms, m)]
        assert distinct_share(forms, m) == pytest.approx(sum(draws) / len(draws) / m)


def test_distinct_accepted_equals_enumeration_of_all_draws():
    samples = ["a", "a", "a", "b", "b", "c", None, None]  # None: not accepted
    forms = [form for form in samples if form]
    for k in range(1, len(samples) + 1):
        draws = [len(set(drawn) - {None}) for drawn in combinations(samples, k)]
        assert distinct_accepted(forms, 8, k) == pytest.approx(sum(draws) / len(draws))
    assert distinct_accepted([], 8, 5) == 0
    assert distinct_accepted(forms, 8, 1) == pytest.approx(len(forms) / 8)  # as pass@1


def test_distinct_share_does_not_depend_on_how_many_were_accepted_but_the_ratio_does():
    rng = random.Random(0)
    means = {}
    for accepted in (6, 20):
        drawn = [rng.choices("abcdefgh", k=accepted) for _ in range(4000)]
        means[accepted] = [
            sum(metric(forms) for forms in drawn) / len(drawn)
            for metric in (lambda forms: distinct_share(forms, 5), distinct_ratio)
        ]
    assert means[6][0] == pytest.approx(means[20][0], abs=0.01)
    assert means[6][1] > means[20][1] + 0.2


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
    pairs = [0, 1 / 4, 1, 1 / 4, 1, 1]
    assert mean_edit_distance(forms) == pytest.approx(sum(pairs) / 6)
    assert mean_edit_distance(["a", "a"]) == 0.0
