from math import isnan, nan

from analysis.stats.differences import holm, tiers


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


def test_a_group_that_is_below_where_it_is_compared_ends_no_tier():
    """Its mean is over problems of its own; on those of both it is the other that is ahead."""
    assert tiers({"a": 0.9, "b": 0.5}, {("b", "a"): 0.01}) == {"a": 1, "b": 1}
    assert tiers({"a": 0.9, "b": 0.5}, {("a", "b"): 0.01}) == {"a": 1, "b": 2}


def test_without_a_mean_no_tier_and_without_a_p_value_no_separation():
    assert tiers({"a": 0.2, "b": nan, "c": 0.9}, {("a", "c"): nan}) == {"c": 1, "a": 1}
