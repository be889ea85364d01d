"""Contrasts named before the runs: corrected among themselves alone."""

from math import isnan
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.comparisons import (
    contrast_table,
    contrast_tests,
    difference_table,
    holm,
    p_values,
    paired_differences,
    with_contrasts,
)
from analysis.metrics import ScoreGrid
from analysis.runs import Contrast


@pytest.fixture(scope="module")
def pairs():
    """Five arms, each a little above the one before, in two metrics."""
    random = np.random.default_rng(1)
    problems, groups = tuple(f"p{i}" for i in range(40)), []
    for place, label in enumerate("abcde"):
        values = 0.3 + 0.02 * place + random.normal(0, 0.02, (4, 1)) + np.zeros((4, 40))
        grid = ScoreGrid((0, 1, 2, 3), problems, values, np.ones_like(values))
        grids = {"pass@1": grid, "pass@10": grid}
        groups.append(SimpleNamespace(label=label, seeds=grid.seeds, grids=grids))
    return paired_differences(groups, ["pass@1", "pass@10"])


def raw(pairs, a, b, metric="pass@1"):
    (pair,) = [pair for pair in pairs if (pair.a, pair.b, pair.metric) == (a, b, metric)]
    return p_values([pair])[0]


def test_holm_is_over_the_contrasts_of_the_metric(pairs):
    named = [Contrast("e", "a"), Contrast("b", "a"), Contrast("c", "a", "pass@10")]
    found = {(one.pair.a, one.pair.b, one.pair.metric): one for one in contrast_tests(pairs, named)}
    assert set(found) == {
        *(("e", "a", metric) for metric in ("pass@1", "pass@10")),
        *(("b", "a", metric) for metric in ("pass@1", "pass@10")),
        ("c", "a", "pass@10"),
    }
    of_two = holm([raw(pairs, "a", label) for label in "eb"])
    of_three = holm([raw(pairs, "a", label, "pass@10") for label in "ebc"])
    assert [found[label, "a", "pass@1"].p for label in "eb"] == pytest.approx(of_two)
    assert [found[label, "a", "pass@10"].p for label in "ebc"] == pytest.approx(of_three)
    (all_pairs,) = [p for p in pairs if (p.a, p.b, p.metric) == ("a", "e", "pass@1")]
    assert all_pairs.adjusted_p > found["e", "a", "pass@1"].p


def test_a_pair_named_twice_is_one_and_a_margin_is_another_hypothesis(pairs):
    named = [
        Contrast("e", "a"),
        Contrast("a", "e"),
        Contrast("e", "a", "pass@1"),
        Contrast("a", "b", "pass@1", 0.2),
    ]
    first, margin = contrast_tests(pairs, named)[:2]
    assert margin.p < first.p == pytest.approx(raw(pairs, "a", "e"))  # the second of two
    # a is below b by less than .2
    assert (margin.margin, margin.answer) == (0.2, "above")
    assert margin.pair.difference.mean < 0
    far = contrast_tests(pairs, [Contrast("a", "e", "pass@1", 0.001)])[0]
    assert far.answer == "below"


def test_an_arm_that_was_not_run_counts_in_the_family(pairs):
    found = contrast_tests(pairs, [Contrast("e", "a"), Contrast("e", "x"), Contrast("x", "y")])
    assert [one.pair.metric for one in found] == ["pass@1", "pass@10"]
    assert found[0].p == pytest.approx(3 * raw(pairs, "a", "e"))


def test_the_tables(pairs):
    named = [Contrast("e", "a"), Contrast("a", "b", "pass@1", 0.2)]
    tested = contrast_tests(pairs, named)
    table = difference_table(with_contrasts(pairs, tested)).set_index(["a", "b", "metric"])
    for order in (("a", "e", "pass@1"), ("e", "a", "pass@1")):
        assert table.loc[order, "p_contrasts"] == tested[0].p
    assert isnan(table.loc[("a", "b", "pass@1"), "p_contrasts"])
    rows = contrast_table(tested)
    assert list(rows["margin"]) == [0.0, 0.2, 0.0]
    assert list(rows["answer"]) == ["above", "above", "above"]
    assert "p_contrasts" not in difference_table(with_contrasts(pairs, []))
    assert contrast_table([]).empty
