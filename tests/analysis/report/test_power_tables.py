"""Of many pairs, those that matter come first; of few, all are shown at once."""

from itertools import combinations

import pandas as pd

from analysis.rendering import FEW, power_tables
from analysis.runs import Contrast

METRICS = ("pass@1", "distinct_of_5")


def power(labels):
    """power.csv of these groups: the n-th pair detects n/100 in pass@1, half in the other."""
    rows = []
    for metric, scale in zip(METRICS, (0.01, 0.005), strict=True):
        for n, (a, b) in enumerate(combinations(labels, 2), 1):
            row = {"a": a, "b": b, "metric": metric, "smallest_difference": scale * n, "wish": 0.05}
            row |= dict.fromkeys(("of_seeds", "of_problems", "of_interaction", "of_sampling"), 0.25)
            row |= {"seeds_needed": 7.0, "samples_needed": 40.0, "problems_needed": float("inf")}
            rows.append(row)
    return pd.DataFrame(rows)


def test_named_pairs_and_the_ends_come_first():
    table = power("abcde")
    table.loc[9, "smallest_difference"] = float("inf")  # d − e in pass@1: no such difference
    named = [
        Contrast("c", "a"),
        Contrast("a", "c", "pass@1"),
        Contrast("a", "b"),
        Contrast("a", "x"),
    ]
    shown = power_tables(table, METRICS, named)
    heading, rows = shown.first
    assert shown.pairs == 10 and len(shown.every[1]) == 20
    assert heading == ["", "pass@1", "distinct of 5", "why it is here"]
    assert rows == [
        ["c − a", "0.020", "0.010", "named ahead"],
        ["a − b", "0.010", "0.005", "named ahead; smallest in pass@1; smallest in distinct of 5"],
        ["c − e", "0.090", "0.045", "largest in pass@1"],
        ["d − e", "inf", "0.050", "largest in distinct of 5"],
    ]


def test_few_pairs_are_all_shown_at_once():
    shown = power_tables(power("abcd"), METRICS, [Contrast("a", "b")])
    assert shown.pairs == FEW and shown.first[1] == []
    assert shown.every[1][0][:3] == ["a − b", "pass@1", "0.010"]
    assert shown.every[1][0][-1] == "none suffices"
    assert power_tables(pd.DataFrame(), METRICS, []).every == ([], [])
