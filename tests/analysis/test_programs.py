"""Normal forms, tokens and the diversity of programs."""

import random
import time
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from analysis.programs import (
    MAX_CHARS,
    distinct_accepted,
    distinct_n,
    distinct_share,
    mean_edit_distance,
    normal_form,
    program_tokens,
)

PAIRS = yaml.safe_load(Path(__file__).with_name("forms.yaml").read_text("utf-8"))


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in PAIRS for name in PAIRS[kind]])
def test_equal_programs_have_one_form_and_different_ones_do_not(kind, name):
    first, second = map(normal_form, PAIRS[kind][name])
    assert first is not None and second is not None
    assert (first == second) == (kind == "same")


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
