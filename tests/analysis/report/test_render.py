import math

from analysis.rendering import ends, with_interval


def row(mean, low, high, problems=200):
    return {"pass@1": mean, "pass@1_low": low, "pass@1_high": high, "pass@1_problems": problems}


def test_an_interval_without_width_says_the_number_of_problems():
    assert with_interval(row(0.0, 0.0, 0.0), "pass@1") == "0.000 [200 problems]"
    assert with_interval(row(0.1, 0.05, 0.15), "pass@1") == "0.100 [0.050, 0.150]"
    assert with_interval(row(0.1, math.nan, math.nan), "pass@1") == "0.100"


def test_a_mean_number_of_problems_is_not_rounded_to_a_whole_one():
    assert with_interval(row(0.0, 0.0, 0.0, 4.5), "pass@1") == "0.000 [4.5 problems]"
    assert with_interval(row(0.0, 0.0, 0.0, 1200.0), "pass@1") == "0.000 [1,200 problems]"


def test_ends_that_would_look_the_same_get_more_digits():
    assert ends(0.1101, 0.1149, 2) == "[0.110, 0.115]"
    assert ends(0.00001, 0.00002, 2) == "[0.00001, 0.00002]"
    assert ends(0.5, 0.5) == ""
    assert with_interval(row(10.7898, 10.78978, 10.78992), "pass@1") == "10.7898 [10.7898, 10.7899]"
