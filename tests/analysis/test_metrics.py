import random
from itertools import combinations

import pytest

from analysis.programs import (
    distinct_accepted,
    distinct_n,
    distinct_ratio,
    distinct_share,
    mean_edit_distance,
    program_tokens,
)


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
