"""What is tuned for whom, when a value stands at an edge, and how a range widens."""

import pytest

from experiments.config.composition import config_of
from experiments.errors import UserError
from experiments.studies.study import read
from experiments.studies.tuning import search_space
from experiments.studies.tuning.search_space import (
    Range,
    check_same_size,
    distance,
    edges,
    read_space,
    widen,
)

RATE = Range(1e-5, 1e-2, log=True)
LINEAR = Range(0.0, 1.0)
WEIGHT = Range(0.001, 1.0, log=True, zero=True)


@pytest.mark.parametrize(
    ("values", "value", "side"),
    [
        (RATE, 1e-5, "low"),
        (RATE, 1.9e-5, "low"),  # 9 % of three decades
        (RATE, 2.1e-5, None),  # 11 %
        (RATE, 1e-3, None),  # 10 % of the range if it were linear
        (RATE, 4.9e-3, None),
        (RATE, 5.1e-3, "high"),
        (LINEAR, 0.09, "low"),
        (LINEAR, 0.11, None),
        (LINEAR, 0.91, "high"),
        (WEIGHT, 0.0, None),
        (WEIGHT, 0.0015, "low"),  # zero is allowed, but between it and this is nothing
        (Range(choices=["k1", "k3"]), "k1", None),
    ],
)
def test_an_edge_is_a_tenth_of_the_range_on_its_own_scale(values, value, side):
    assert values.edge(value) == side
    assert edges({"key": value}, {"key": values}) == ({"key": side} if side else {})


def test_a_range_widens_by_a_third_of_a_decade_or_of_its_width():
    assert (RATE.widened("high").low, RATE.widened("high").high) == (1e-5, 0.02154)
    assert (RATE.widened("low").low, RATE.widened("low").high) == (4.642e-6, 1e-2)
    assert RATE.widened("low", 3).low == 1e-6
    assert LINEAR.widened("high").high == 1.333
    assert LINEAR.widened("low").low == 0  # a share does not become negative
    assert Range(-1.0, 1.0).widened("low").low == -1.667
    assert WEIGHT.widened("low").zero


def test_only_the_keys_that_an_arm_tunes_widen():
    space = {"algo.learning_rate": RATE, "algo.beta": Range(0.01, 3, log=True)}
    wide = widen(space, {"algo.learning_rate": {"high": 2}, "algo.kl_coef": {"low": 1}})
    assert wide == {**space, "algo.learning_rate": RATE.widened("high", 2)}
    both = widen({"x": RATE}, {"x": {"low": 1, "high": 1}})["x"]
    assert (both.low, both.high) == (4.642e-6, 0.02154)


def test_distances_in_words():
    assert distance(1e-4, RATE) == "33% of 1e-05 to 0.01 from the low edge"
    assert distance(0.0, WEIGHT) == "0 is allowed"
    assert distance("k1", Range(choices=["k1", "k3"])) == "one of k1, k3"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (Range(1.0, 0.5), "low below high"),
        (Range(0.0, 1.0, log=True), "above 0 with log"),
        (Range(0.0, 1.0, zero=True), "beside a range above 0"),
        (Range(choices=["a"], zero=True), "beside a range above 0"),
    ],
)
def test_a_range_that_is_none_is_refused(values, words):
    with pytest.raises(UserError, match=words):
        values.check("key")


def test_all_arms_of_the_study_tune_the_same_number_of_keys():
    study = read("mini")
    algos = {
        arm: config_of((*study.overrides, *study.untuned_overrides(arm))).algo.name
        for arm in study.tuned_arms
    }
    assert set(algos) == {
        *("sft", "raft", "spo", "spo_squared", "spo_mc", "spo_half", "luffy_half"),
        *("ppo", "grpo", "rloo"),
    }
    spaces = {arm: read_space(algo) for arm, algo in algos.items()}
    check_same_size(spaces)
    more = {**spaces, "spo": {**spaces["spo"], "algo.slope_width": LINEAR}}
    with pytest.raises(UserError, match="spo 4, spo_squared 3"):
        check_same_size(more)


def test_an_arm_may_name_a_space_that_fits_it_better():
    """PPO without a critic has no rate of one to tune."""
    assert read_space("ppo", "grpo") == read_space("grpo")
    with pytest.raises(UserError, match="search=gpro: no such file; choose from _default, grpo"):
        read_space("ppo", "gpro")


FILES = sorted(search_space.FOLDER.glob("*.yaml"))


def test_every_space_is_as_large_and_holds_the_rate_over_three_decades():
    spaces = [read_space(file.stem) for file in FILES]
    assert {len(space) for space in spaces} == {3}
    assert {tuple(vars(space["algo.learning_rate"]).items()) for space in spaces} == {
        tuple(vars(RATE).items())
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_searched_can_be_set_and_holds_the_default(file):
    algo = "gspo" if file.stem == "_default" else file.stem
    space = read_space(algo)
    sides = [[f"{k}={v}" for k, v in zip(space, ends, strict=True)] for ends in _corners(space)]
    for overrides in sides:
        config_of([f"algo={algo}", *overrides])
    for key, one in space.items():
        default = config_of([f"algo={algo}"])
        for part in key.split("."):
            default = getattr(default, part)
        if default is None:  # the critic's rate is the policy's
            continue
        inside = one.choices and default in one.choices
        assert inside or (one.zero and default == 0) or one.low <= default <= one.high


def _corners(space):
    """The least and the greatest value of every key, and zero where it is allowed."""
    ends = [(one.choices or [one.low, one.high]) + [0] * one.zero for one in space.values()]
    return [
        [values[min(i, len(values) - 1)] for values in ends] for i in range(max(map(len, ends)))
    ]
