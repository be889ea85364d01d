from types import SimpleNamespace

import numpy as np
import pytest

from analysis.metrics.scores import ScoreGrid
from analysis.stats.differences import difference_table, p_values, pairs, tier_table


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
    (found,) = pairs(groups, ["pass@1"])
    return found


@pytest.fixture
def three():
    random = np.random.default_rng(0)
    hard = random.random((1, 80)) * 0.6
    noise = random.normal(0, 0.05, (3, 3, 80))
    return [
        group(name, hard + ahead + noise[i])
        for i, (name, ahead) in enumerate((("a", 0.0), ("b", 0.01), ("c", 0.35)))
    ]


def test_a_pair_shares_the_problems_difficulty_and_is_told_apart_better_than_its_groups(three):
    found = {(one.a, one.b): one for one in pairs(three, ["pass@1"])}
    far, near = found["a", "c"], found["a", "b"]
    expected = three[0].grids["pass@1"].values.mean() - three[2].grids["pass@1"].values.mean()
    assert far.difference.mean == pytest.approx(expected)
    assert far.difference.low < expected < far.difference.high < 0
    assert far.difference.high - far.difference.low < 0.15
    assert far.apart
    assert not near.apart
    assert far.improvement < 0.05
    assert (far.seeds, far.problems) == (3, 80)


def test_the_table_has_both_orders_and_they_mirror_each_other(three):
    table = difference_table(pairs(three, ["pass@1"]))
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
    ]
    assert len(table) == 6
    way, back = (table[(table["a"] == a) & (table["b"] == b)].iloc[0] for a, b in ("ac", "ca"))
    assert (way["difference"], way["low"]) == (-back["difference"], -back["high"])
    chances = way["probability_of_improvement"] + back["probability_of_improvement"]
    assert chances == pytest.approx(1)


def test_tiers_follow_the_differences(three):
    table = tier_table(three, pairs(three, ["pass@1"]))
    assert dict(zip(table["label"], table["tier"], strict=True)) == {"c": 1, "b": 2, "a": 2}


def test_only_seeds_and_problems_of_both_count():
    one = grid([[1, 0, 1], [1, 1, 1], [0, 0, 0]], (0, 1, 2), ("p", "q", "r"))
    two = grid([[0, 9], [0, 9]], (1, 0), ("q", "s"))
    found = pair(one, two)
    assert (found.seeds, found.problems) == (2, 1)
    assert found.difference.mean == 0.5
    nothing = pair(one, grid([[0, 0, 0]], (7,), ("p", "q", "r")))
    assert nothing.seeds == 0
    assert np.isnan(nothing.difference.mean)
    (nothing,) = pairs([group("a", [[1.0]], (0,)), group("b", [[1.0]], (0,))], ["pass@10"])
    assert nothing.seeds == 0


def test_a_pair_is_the_same_beside_others_as_alone():
    random = np.random.default_rng(0)
    names = ("p", "q", "r", "s", "t")
    groups = []
    held = {"a": ((0, 1, 2), 5), "b": ((2, 0), 3), "c": ((1, 2, 3), 4), "d": ((9,), 5)}
    for label, (seeds, problems) in held.items():
        values = random.random((len(seeds), problems))
        weights = (random.random(values.shape) < 0.8) * random.integers(1, 5, values.shape)
        grids = {"distinct_ratio": grid(values, seeds, names[-problems:], weights)}
        groups.append(SimpleNamespace(label=label, seeds=seeds, grids=grids))
    for one in pairs(groups, ["distinct_ratio"]):
        two = [group for group in groups if group.label in (one.a, one.b)]
        (alone,) = pairs(two, ["distinct_ratio"])
        told = [(x.difference.mean, x.difference.low, x.difference.high) for x in (one, alone)]
        assert told[0] == pytest.approx(told[1], abs=1e-12, nan_ok=True)
        counted = [(x.seeds, x.problems) for x in (one, alone)]
        assert counted[0] == counted[1]
        assert one.improvement == pytest.approx(alone.improvement, abs=1e-12, nan_ok=True)


def test_where_one_is_not_defined_the_other_does_not_count():
    one = grid([[0.9, 0.1]] * 2, (0, 1), weights=[[1, 1], [1, 1]])
    two = grid([[0.5, np.nan]] * 2, (0, 1), weights=[[1, 0], [1, 0]])
    assert pair(one, two).difference.mean == pytest.approx(0.4)


def test_one_seed_tells_a_difference_and_no_interval():
    random = np.random.default_rng(0)
    one, two = (grid(random.random((1, 50)) / 2 + ahead, (0,)) for ahead in (0.5, 0))
    found = pair(one, two)
    assert found.difference.mean > 0.4
    assert np.isnan([found.difference.low, found.difference.high, *p_values([found])]).all()
    assert not found.apart
