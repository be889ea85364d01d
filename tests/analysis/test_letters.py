"""Groups that share a letter are not separated, and those that share none are."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.comparisons import letter_table, letters, paired_differences
from analysis.metrics import ScoreGrid


def test_the_textbooks_three():
    assert letters("abc", []) == {"a": "a", "b": "a", "c": "a"}
    assert letters("abc", [("a", "c")]) == {"a": "a", "b": "ab", "c": "b"}
    assert letters("abc", [("a", "c"), ("a", "b")]) == {"a": "a", "b": "b", "c": "b"}
    assert letters("abc", list(combinations("abc", 2))) == {"a": "a", "b": "b", "c": "c"}
    assert letters([], []) == {}


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 9), st.data())
def test_two_groups_share_a_letter_exactly_if_they_are_not_separated(count, data):
    order = [f"g{i}" for i in range(count)]
    pairs = list(combinations(order, 2))
    separated = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    shown = letters(order, separated)
    for pair in pairs:
        shares = bool(set(shown[pair[0]]) & set(shown[pair[1]]))
        assert shares == (pair not in separated), (shown, separated)
    assert shown[order[0]].startswith("a")


def groups(seeds, **means):
    random = np.random.default_rng(0)
    hard = random.random((1, 60)) * 0.3
    return [
        SimpleNamespace(
            label=label,
            grids={
                "pass@1": ScoreGrid(
                    tuple(range(seeds)),
                    tuple(f"p{i}" for i in range(60)),
                    hard + mean + random.normal(0, 0.03, (seeds, 60)),
                    np.ones((seeds, 60)),
                )
            },
        )
        for label, mean in means.items()
    ]


def test_the_table_is_best_first_with_means_and_letters():
    three = groups(3, low=0.1, high=0.5, also_low=0.1)
    table = letter_table(three, paired_differences(three, ["pass@1"]))
    assert table["label"].tolist()[0] == "high"
    assert table["letters"].tolist() == ["a", "b", "b"]
    assert table["mean"].is_monotonic_decreasing
