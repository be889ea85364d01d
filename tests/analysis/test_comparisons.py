"""Paired differences, letters, contrasts, a control, and equality."""

from itertools import combinations
from math import isnan, nan
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.comparisons import (
    contrast_table,
    contrast_tests,
    control_differences,
    control_table,
    correlation,
    difference_table,
    equality_p_values,
    holm,
    interactions,
    letter_table,
    letters,
    p_values,
    paired_differences,
    tier_table,
    tiers,
    with_contrasts,
    with_control,
    with_equality,
)
from analysis.intervals import Estimate, moderate, resources_to_decide, seed_spread, smallest_margin
from analysis.metrics import ScoreGrid
from analysis.runs import Contrast


def grid(values, seeds=None, problems=None, weights=None):
    values = np.asarray(values, dtype=float)
    seeds = range(len(values)) if seeds is None else seeds
    problems = problems or tuple(f"p{i:03}" for i in range(values.shape[1]))
    weights = np.ones_like(values) if weights is None else np.asarray(weights, dtype=float)
    return ScoreGrid(tuple(seeds), tuple(problems), values, weights)


def group(label, scores, *metrics):
    """`scores`: a grid, or its values; `metrics` that have them, pass@1 if none is named."""
    scores = scores if isinstance(scores, ScoreGrid) else grid(scores)
    grids = dict.fromkeys(metrics or ["pass@1"], scores)
    return SimpleNamespace(label=label, seeds=scores.seeds, grids=grids)


def arm(label, means):
    """Seeds with these means, on 50 problems that are equally hard."""
    return group(label, np.asarray(means, dtype=float)[:, None] + np.zeros(50))


def pair(one, two):
    """The one pair of two grids."""
    (difference,) = paired_differences([group("one", one), group("two", two)], ["pass@1"])
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
    columns = "a b metric difference low high probability_of_improvement seeds problems p"
    assert list(table) == columns.split()
    assert len(table) == 6
    way, back = (table[(table["a"] == a) & (table["b"] == b)].iloc[0] for a, b in ("ac", "ca"))
    assert (way["difference"], way["low"]) == (-back["difference"], -back["high"])
    chances = way["probability_of_improvement"] + back["probability_of_improvement"]
    assert chances == pytest.approx(1)


def test_tiers_and_letters_follow_the_differences_best_first_with_means(three):
    pairs = paired_differences(three, ["pass@1"])
    table = tier_table(three, pairs)
    assert dict(zip(table["label"], table["tier"], strict=True)) == {"c": 1, "b": 2, "a": 2}
    table = letter_table(three, pairs)
    assert table["label"].tolist()[0] == "c"
    assert table["letters"].tolist() == ["a", "b", "b"]
    assert table["mean"].is_monotonic_decreasing


def test_only_seeds_and_problems_of_both_count():
    one = grid([[1, 0, 1], [1, 1, 1], [0, 0, 0]], (0, 1, 2), ("p", "q", "r"))
    two = grid([[0, 9], [0, 9]], (1, 0), ("q", "s"))
    difference = pair(one, two)
    assert (difference.seeds, difference.problems) == (2, 1)
    assert difference.difference.mean == 0.5
    nothing = pair(one, grid([[0, 0, 0]], (7,), ("p", "q", "r")))
    assert nothing.seeds == 0
    assert np.isnan(nothing.difference.mean)
    (nothing,) = paired_differences([group("a", [[1.0]]), group("b", [[1.0]])], ["pass@10"])
    assert nothing.seeds == 0


def test_a_pair_has_the_same_mean_beside_others_as_alone_and_its_spread_is_moderated_by_them():
    random = np.random.default_rng(0)
    names = ("p", "q", "r", "s", "t")
    groups = []
    measured = {"a": ((0, 1, 2), 5), "b": ((2, 0), 3), "c": ((1, 2, 3), 4), "d": ((9,), 5)}
    for label, (seeds, problems) in measured.items():
        values = random.random((len(seeds), problems))
        weights = (random.random(values.shape) < 0.8) * random.integers(1, 5, values.shape)
        scores = grid(values, seeds, names[-problems:], weights)
        groups.append(group(label, scores, "distinct_ratio"))
    for one in paired_differences(groups, ["distinct_ratio"]):
        two = [each for each in groups if each.label in (one.a, one.b)]
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
    assert np.isnan([*difference.difference[1:], *p_values([difference])]).all()
    assert not difference.separated


def test_holm_multiplies_by_what_is_left_and_never_falls():
    assert holm([0.01, 0.04, 0.03]) == [0.03, 0.06, 0.06]
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    adjusted = holm([nan, 0.02])  # a comparison that could not be made counts in the family
    assert isnan(adjusted[0])
    assert adjusted[1] == 0.04


def test_groups_that_are_not_separated_share_a_tier_though_their_ends_are():
    means = {"a": 0.6, "b": 0.5, "c": 0.4, "d": 0.1}
    apart = {("a", "c"): 0.01, ("a", "d"): 0.01, ("b", "d"): 0.01, ("c", "d"): 0.02}
    near = {("a", "b"): 0.2, ("b", "c"): 0.3}
    assert tiers(means, near | apart) == {"a": 1, "b": 1, "c": 1, "d": 2}
    assert tiers(means, apart | {("a", "b"): 0.01, ("b", "c"): 0.01})["d"] == 4


# Groups that share a letter are not separated, and those that share none are.


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


# Contrasts named before the runs: corrected among themselves alone.


@pytest.fixture(scope="module")
def pairs():
    """Five arms, each a little above the one before, in two metrics."""
    random = np.random.default_rng(1)
    groups = []
    for place, label in enumerate("abcde"):
        values = 0.3 + 0.02 * place + random.normal(0, 0.02, (4, 1)) + np.zeros((4, 40))
        groups.append(group(label, values, "pass@1", "pass@10"))
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


# Interactions: a contrast of two differences.

INTERACTION = Contrast("(a - b)", "(c - d)", "pass@1")


def crossed(of_seed=0.01):
    """Groups a to d with (a - b) - (c - d) = .1; all share the problems' difficulty."""
    random = np.random.default_rng(3)
    hard, noise = random.normal(0, 0.3, 60), random.normal(0, of_seed, (4, 5, 1))
    means = zip("abcd", (0.5, 0.3, 0.6, 0.5), noise, strict=True)
    return [group(label, mean + hard + own) for label, mean, own in means]


def test_an_interaction_is_the_difference_of_two_differences_by_seed_and_problem():
    (found,) = interactions(crossed(of_seed=0.0), [Contrast("a", "b"), INTERACTION])
    assert found.difference == pytest.approx((0.1, 0.1, 0.1))
    assert (found.seeds, found.problems) == (5, 60)
    others = [INTERACTION._replace(metric="pass@10"), Contrast("(a - b)", "c", "pass@1")]
    assert interactions(crossed()[:3], [INTERACTION]) == interactions(crossed(), others) == []


def test_an_interaction_has_the_spread_of_four_groups_and_not_that_of_problems():
    groups = crossed()
    (found,) = interactions(groups, [INTERACTION])
    scores = {one.label: one.grids["pass@1"].values.mean(axis=1) for one in groups}
    mean = scores["a"] - scores["b"] - scores["c"] + scores["d"]
    assert found.difference.mean == pytest.approx(mean.mean())
    of_arms = sum(moderate(*seed_spread(np.array(list(scores.values()))))[0])
    assert found.estimate.tested().seed_variance == pytest.approx(of_arms / 5)
    assert found.estimate.seed_freedom > 2 * 4  # of four groups, not of one
    for shift, one in enumerate(groups):  # each group on problems of its own
        one.grids["pass@1"] = grid(np.roll(one.grids["pass@1"].values, 7 * shift, 1), range(5))
    (unpaired,) = interactions(groups, [INTERACTION])
    assert found.difference.low < 0.1 < found.difference.high < unpaired.difference.high - 0.05


def test_an_interaction_is_corrected_together_with_the_pairs_of_its_metric():
    groups = crossed()
    named = [Contrast("a", "b"), INTERACTION]
    found = [*paired_differences(groups, ["pass@1"]), *interactions(groups, named)]
    first, second = contrast_tests(found, named)
    p = holm([p_values([found[0]])[0], p_values([found[-1]])[0]])
    assert [first.p, second.p] == pytest.approx(p) and second.answer == "above"
    assert contrast_table([second])["a"].tolist() == ["(a - b)"]


# Each group against a control: Dunnett's test where its assumptions hold, Holm's as a bound.


@pytest.fixture(scope="module")
def four():
    """A control and three arms of equal spread, 40 seeds each, the last one above."""
    random = np.random.default_rng(3)
    means = random.normal(0.5, 0.05, (4, 40)) + np.array([[0], [0.004], [-0.02], [0.04]])
    return dict(zip(("sft", "ppo", "raft", "spo"), means, strict=True))


def test_the_least_p_value_is_dunnetts(four):
    groups = [arm(label, means) for label, means in four.items()]
    found = control_differences(paired_differences(groups, ["pass@1"]), "sft")
    arms = [four[pair.a] for pair in found]
    dunnett = stats.dunnett(*arms, control=four["sft"])
    place = int(np.argmin(dunnett.pvalue))
    assert [pair.a for pair in found] == ["ppo", "raft", "spo"]
    assert {pair.b for pair in found} == {"sft"}
    assert found[place].a == "spo" and found[place].separated
    assert found[place].adjusted_p == pytest.approx(dunnett.pvalue[place], abs=2e-3)
    # Later steps correct for fewer comparisons.
    others = [i for i in range(3) if i != place]
    assert all(found[i].adjusted_p <= dunnett.pvalue[i] + 0.01 for i in others)
    assert [pair.difference.mean for pair in found] == pytest.approx(
        [arm.mean() - four["sft"].mean() for arm in arms]
    )


def test_the_correlation_is_the_controls_share_of_both_variances_up_to_one_half(four):
    random = np.random.default_rng(0)
    steady = four | {"sft": 0.5 + random.normal(0, 0.01, 40)}
    wild = four | {"sft": 0.5 + random.normal(0, 0.4, 40)}
    for arms, ends in ((steady, (0.0, 0.1)), (four, (0.4, 0.5)), (wild, (0.5, 0.5))):
        groups = [arm(label, means) for label, means in arms.items()]
        pairs = paired_differences(groups, ["pass@1"])
        found = correlation([pair.reversed() for pair in pairs if pair.a == "sft"], pairs)
        assert np.diag(found) == pytest.approx(1)
        assert ends[0] <= found[0, 1] == found[1, 0] <= ends[1]


def test_with_few_seeds_a_part_of_the_freedom_of_other_arms_counts(four):
    for seeds, share in ((2, 1 / 2), (3, 7 / 8), (5, 31 / 32)):
        groups = [arm(label, means[:seeds]) for label, means in four.items()]
        difference = paired_differences(groups, ["pass@1"])[0].estimate
        own = seeds - 1
        assert difference.seed_freedom > own
        found = with_control(difference, 0.0)
        assert found.seed_freedom - own == pytest.approx(share * (difference.seed_freedom - own))
        assert found.seed_variance == difference.seed_variance


def test_the_controls_variance_is_not_moderated_to_less_than_its_own(four):
    """Where it spreads more than the others, but not enough to keep its own spread."""
    spread = np.array([-0.1, 0.02, 0.08])
    arms = {label: means[:3] for label, means in four.items()} | {"sft": 0.5 + spread}
    groups = [arm(label, means) for label, means in arms.items()]
    pair = paired_differences(groups, ["pass@1"])[0]
    own, freedom = seed_spread(np.array(list(arms.values())))
    moderated, _ = moderate(own, freedom)
    assert pair.lowered == pytest.approx(tuple(np.maximum(own - moderated, 0)[:2]))
    assert pair.a == "sft" and pair.lowered[0] > 0
    assert pair.reversed().lowered == pair.lowered[::-1]
    found = with_control(pair.estimate, pair.lowered[0]).seed_variance
    assert found == pytest.approx((own[0] + moderated[1]) / 3)


def test_without_the_control_there_is_no_comparison_and_a_margin_makes_answers(four):
    groups = [arm(label, means) for label, means in four.items()]
    pairs = paired_differences(groups, ["pass@1"])
    assert control_differences(pairs, None) == control_differences(pairs, "dpo") == []
    assert control_table([]).empty
    table = control_table(control_differences(pairs, "sft", 0.05)).set_index("group")
    assert table.loc["ppo", "answer"] == "equal" and table.loc["spo", "answer"] == "above"
    assert set(table["control"]) == {"sft"} and table["difference"]["raft"] < 0
    # Equality is corrected by Holm over the same three comparisons.
    family = control_differences(pairs, "sft", 0.05)
    assert max(pair.equal_p for pair in family) <= 1 and len(p_values(family)) == 3


# Equality within a margin: two one-sided tests, and what an answer takes.

# 5 seeds whose difference has mean .01 and a standard error of .02, with 8 degrees of freedom.
OF_SEEDS = Estimate(0.01, 0.02**2, 0.0, 0.0, 5, 200, 8.0)


def test_the_p_value_is_the_greater_one_of_two_one_sided_t_tests():
    lower = stats.t.sf((0.01 + 0.05) / 0.02, 8)
    upper = stats.t.cdf((0.01 - 0.05) / 0.02, 8)
    assert upper > lower
    assert equality_p_values(OF_SEEDS, 0.05) == pytest.approx(upper, rel=1e-6)
    assert equality_p_values(OF_SEEDS, 0.01) == pytest.approx(0.5)  # on the bound
    outside = stats.t.cdf((0.01 - 0.005) / 0.02, 8)
    assert equality_p_values(OF_SEEDS, 0.005) == pytest.approx(outside, rel=1e-6)


def test_four_answers_and_their_columns():
    arms = {"a": 0.5, "b": 0.501, "c": 0.9, "d": 0.52}
    spread = {"d": 0.05}
    groups = [
        arm(label, mean + spread.get(label, 0.001) * np.array([-1, 1, 0, 0.5, -0.5]))
        for label, mean in arms.items()
    ]
    pairs = with_equality(paired_differences(groups, ["pass@1"]), 0.03)
    answers = {(pair.a, pair.b): pair.answer for pair in pairs}
    assert answers["a", "b"] == "equal"
    assert answers["a", "c"] == "below"
    assert answers["a", "d"] == "not decided"
    table = difference_table(pairs).set_index(["a", "b"])
    assert table.loc[("c", "a"), "answer"] == "above"
    assert table.loc[("b", "a"), "answer"] == "equal"
    assert table.loc[("a", "d"), "seeds_to_decide"] > 5
    assert table.loc[("a", "b"), "seeds_to_decide":].isna().all()
    raw = [float(equality_p_values(pair.estimate, 0.03)) for pair in pairs]
    assert [pair.equal_p for pair in pairs] == holm(raw)
    assert set(table["margin"]) == {0.03}


def test_the_seeds_that_decide_have_the_half_widths_that_it_takes():
    """.02 at 5 seeds is .02 · √(5/S) at S; 4 seeds' worth of freedom per arm are 2 · (S − 1)."""
    stacked = Estimate.stack([OF_SEEDS])
    (needed,) = resources_to_decide(stacked, 0.05, 1)["seeds"]

    def margin_at(seeds, level=0.05):
        error, freedom = 0.02 * np.sqrt(5 / seeds), 2 * (seeds - 1)
        equal = stats.t.ppf(1 - level, freedom) + stats.t.ppf(0.9, freedom)
        separated = stats.t.ppf(1 - level / 2, freedom) + stats.t.ppf(0.8, freedom)
        return error * max(equal, separated)

    assert margin_at(needed) <= 0.05 < margin_at(needed - 1)
    assert smallest_margin(OF_SEEDS) == pytest.approx(margin_at(5))
    assert smallest_margin(OF_SEEDS, 10) == pytest.approx(margin_at(5, 0.005))
    assert resources_to_decide(stacked, 0.05, 10)["seeds"] > needed
    assert resources_to_decide(stacked, 0.05, 1)["problems"] == np.inf
