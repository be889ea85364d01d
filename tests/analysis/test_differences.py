from math import isnan, nan
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.comparisons import (
    difference_table,
    holm,
    p_values,
    paired_differences,
    tier_table,
    tiers,
)
from analysis.metrics import ScoreGrid


def grid(values, seeds=(0, 1, 2), problems=None, weights=None):
    values = np.asarray(values, dtype=float)
    problems = problems or tuple(f"p{i:03}" for i in range(values.shape[1]))
    weights = np.ones_like(values) if weights is None else np.asarray(weights, dtype=float)
    return ScoreGrid(tuple(seeds), tuple(problems), values, weights)


def group(label, values, seeds=(0, 1, 2)):
    return SimpleNamespace(label=label, seeds=seeds, grids={"pass@1": grid(values, seeds)})


def pair(one, two):
    """The one pair of two grids."""
    groups = [
        SimpleNamespace(label=label, seeds=of.seeds, grids={"pass@1": of})
        for label, of in (("one", one), ("two", two))
    ]
    (difference,) = paired_differences(groups, ["pass@1"])
    return difference


@pytest.fixture
def three():
    random = np.random.default_rng(0)
    hard = random.random((1, 80)) * 0.6
    noise = random.normal(0, 0.05, (3, 3, 80))
    return [
        group(name, hard + ahead + noise[i])
        for i, (name, ahead) in enumerate((("a", 0.0), ("b", 0.002), ("c", 0.35)))
    ]


def test_a_pair_shares_the_problems_difficulty_and_is_told_apart_better_than_its_groups(three):
    difference = {(one.a, one.b): one for one in paired_differences(three, ["pass@1"])}
    far, near = difference["a", "c"], difference["a", "b"]
    expected = three[0].grids["pass@1"].values.mean() - three[2].grids["pass@1"].values.mean()
    assert far.difference.mean == pytest.approx(expected)
    assert far.difference.low < expected < far.difference.high < 0
    assert far.difference.high - far.difference.low < 0.15
    assert far.separated
    assert not near.separated
    assert far.improvement < 0.05
    assert (far.seeds, far.problems) == (3, 80)


def test_the_table_has_both_orders_and_they_mirror_each_other(three):
    table = difference_table(paired_differences(three, ["pass@1"]))
    assert list(table) == [
        "a",
        "b",
        "metric",
        "difference",
        "low",
        "high",
        "probability_of_improvement",
        "seeds",
        "problems",
        "p",
    ]
    assert len(table) == 6
    way, back = (table[(table["a"] == a) & (table["b"] == b)].iloc[0] for a, b in ("ac", "ca"))
    assert (way["difference"], way["low"]) == (-back["difference"], -back["high"])
    chances = way["probability_of_improvement"] + back["probability_of_improvement"]
    assert chances == pytest.approx(1)


def test_tiers_follow_the_differences(three):
    table = tier_table(three, paired_differences(three, ["pass@1"]))
    assert dict(zip(table["label"], table["tier"], strict=True)) == {"c": 1, "b": 2, "a": 2}


def test_only_seeds_and_problems_of_both_count():
    one = grid([[1, 0, 1], [1, 1, 1], [0, 0, 0]], (0, 1, 2), ("p", "q", "r"))
    two = grid([[0, 9], [0, 9]], (1, 0), ("q", "s"))
    difference = pair(one, two)
    assert (difference.seeds, difference.problems) == (2, 1)
    assert difference.difference.mean == 0.5
    nothing = pair(one, grid([[0, 0, 0]], (7,), ("p", "q", "r")))
    assert nothing.seeds == 0
    assert np.isnan(nothing.difference.mean)
    (nothing,) = paired_differences(
        [group("a", [[1.0]], (0,)), group("b", [[1.0]], (0,))], ["pass@10"]
    )
    assert nothing.seeds == 0


def test_a_pair_has_the_same_mean_beside_others_as_alone_and_its_spread_is_moderated_by_them():
    random = np.random.default_rng(0)
    names = ("p", "q", "r", "s", "t")
    groups = []
    measured = {"a": ((0, 1, 2), 5), "b": ((2, 0), 3), "c": ((1, 2, 3), 4), "d": ((9,), 5)}
    for label, (seeds, problems) in measured.items():
        values = random.random((len(seeds), problems))
        weights = (random.random(values.shape) < 0.8) * random.integers(1, 5, values.shape)
        grids = {"distinct_ratio": grid(values, seeds, names[-problems:], weights)}
        groups.append(SimpleNamespace(label=label, seeds=seeds, grids=grids))
    for one in paired_differences(groups, ["distinct_ratio"]):
        two = [group for group in groups if group.label in (one.a, one.b)]
        (alone,) = paired_differences(two, ["distinct_ratio"])
        means = [x.difference.mean for x in (one, alone)]
        assert means[0] == pytest.approx(means[1], abs=1e-12, nan_ok=True)
        if one.seeds > 1:
            assert one.difference.low != alone.difference.low
        counted = [(x.seeds, x.problems) for x in (one, alone)]
        assert counted[0] == counted[1]
        assert one.improvement == pytest.approx(alone.improvement, abs=1e-12, nan_ok=True)


def test_one_seed_tells_a_difference_and_no_interval():
    random = np.random.default_rng(0)
    one, two = (grid(random.random((1, 50)) / 2 + ahead, (0,)) for ahead in (0.5, 0))
    difference = pair(one, two)
    assert difference.difference.mean > 0.4
    assert np.isnan(
        [difference.difference.low, difference.difference.high, *p_values([difference])]
    ).all()
    assert not difference.separated


def test_holm_multiplies_by_what_is_left_and_never_falls():
    assert holm([0.01, 0.04, 0.03]) == [0.03, 0.06, 0.06]
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_comparison_that_could_not_be_made_counts_in_the_family():
    adjusted = holm([nan, 0.02])
    assert isnan(adjusted[0])
    assert adjusted[1] == 0.04


def test_groups_that_are_not_separated_share_a_tier_though_their_ends_are():
    means = {"a": 0.6, "b": 0.5, "c": 0.4, "d": 0.1}
    apart = {("a", "c"): 0.01, ("a", "d"): 0.01, ("b", "d"): 0.01, ("c", "d"): 0.02}
    assert tiers(means, {("a", "b"): 0.2, ("b", "c"): 0.3, **apart}) == {
        "a": 1,
        "b": 1,
        "c": 1,
        "d": 2,
    }
    assert tiers(means, apart | {("a", "b"): 0.01, ("b", "c"): 0.01})["d"] == 4
