"""What each verdict is paid under each kind of reward."""

import math
from dataclasses import replace

import pytest

from envs.problem import Judgement, Verdict
from envs.reward import RewardConfig, RewardError, conciseness_reward, length_penalty, reward


def judged(verdict, passed=0, run=4, total=4, program="print(1)"):
    return Judgement(verdict=verdict, passed=passed, total=total, run=run, program=program)


ACCEPTED = judged(Verdict.ACCEPTED, passed=4)
HALF = judged(Verdict.WRONG_ANSWER, passed=2)
NO_PROGRAM = judged(Verdict.SYNTAX_ERROR, run=0, program="")
UNPARSABLE = judged(Verdict.SYNTAX_ERROR, run=0)


@pytest.mark.parametrize("verdict", sorted(set(Verdict) - {Verdict.ACCEPTED, Verdict.INFRA_ERROR}))
def test_binary_pays_only_accepted(verdict):
    assert reward(judged(verdict, passed=3), RewardConfig()) == 0.0
    assert reward(ACCEPTED, RewardConfig()) == 1.0


def test_fraction_is_the_share_of_tests_within_the_range():
    config = RewardConfig(kind="fraction", low=-1.0, high=1.0)
    assert reward(ACCEPTED, config) == 1.0
    assert reward(HALF, config) == 0.0
    assert reward(UNPARSABLE, config) == -1.0
    assert reward(NO_PROGRAM, config) == -1.0


@pytest.mark.parametrize("kind", ["binary", "fraction", "shaped"])
def test_an_infrastructure_error_is_never_a_reward(kind):
    with pytest.raises(ValueError, match="INFRA_ERROR"):
        reward(judged(Verdict.INFRA_ERROR), RewardConfig(kind=kind))


@pytest.mark.parametrize("kind", ["fraction", "shaped"])
def test_a_share_of_tests_needs_all_of_them(kind):
    with pytest.raises(ValueError, match=r"early_stop=false"):
        reward(judged(Verdict.WRONG_ANSWER, passed=1, run=2), RewardConfig(kind=kind))
    assert RewardConfig(kind=kind).needs_all_tests
    assert not RewardConfig().needs_all_tests


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"kind": "dense"}, "binary"),
        ({"kind": "envs.problem.pay"}, "has no function pay"),
        ({"low": 1.0}, "low"),
        ({"overlong": [64, 64]}, r"overlong=\[64, 64\]: two lengths"),
        ({"overlong": [64]}, "overlong"),
    ],
)
def test_impossible_settings_are_refused(wrong, names):
    with pytest.raises(ValueError, match=names):
        RewardConfig(**wrong)


def by_speed(judgement):
    """Somebody's reward."""
    return judgement.passed / judgement.total - judgement.cpu_s


def by_mistake(judgement):
    return 1 / judgement.passed


OWN = f"{__name__}.by_speed"


def test_a_function_of_ones_own_pays_what_it_returns():
    config = RewardConfig(kind=OWN)
    assert reward(ACCEPTED, config) == 1.0
    assert reward(replace(HALF, cpu_s=0.25), config) == 0.25
    assert config.needs_all_tests
    with pytest.raises(ValueError, match="INFRA_ERROR"):
        reward(judged(Verdict.INFRA_ERROR), config)


@pytest.mark.parametrize(
    ("kind", "judgement", "said"),
    [
        (OWN, replace(HALF, cpu_s=3.0), ["WRONG_ANSWER", "paid -2.5", "task.reward.low=0 and"]),
        (OWN, replace(HALF, cpu_s=float("nan")), ["paid nan"]),
        (f"{__name__}.by_mistake", NO_PROGRAM, ["by_mistake", "ZeroDivisionError: division by"]),
        (f"{__name__}.judged", NO_PROGRAM, ["judged", "TypeError"]),
    ],
)
def test_what_is_no_reward_is_one_line(kind, judgement, said):
    with pytest.raises(RewardError) as error:
        reward(judgement, RewardConfig(kind=kind))
    assert all(word in str(error.value) for word in said) and "\n" not in str(error.value)


def test_rewards_are_kept_apart_by_all_that_they_depend_on(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "my_reward.py"
    file.write_text("def pay(judgement):\n    return 0.5\n")
    config = RewardConfig(kind="my_reward.pay")
    known = {RewardConfig().identity, RewardConfig(high=2.0).identity, config.identity}
    file.write_text("def pay(judgement):\n    return 0.25\n")
    assert len(known | {config.identity}) == 4


@pytest.mark.parametrize(
    ("tokens", "dapos"), [(1, 0.0), (16384, 0.0), (18432, -0.5), (20480, -1.0), (30000, -1.0)]
)
def test_overlong_responses_are_paid_less_as_in_dapo(tokens, dapos):
    ours = RewardConfig(overlong=[16384, 20480])  # 0 to 1 where DAPO pays −1 to 1
    assert -length_penalty(tokens, ours) == pytest.approx(dapos / 2)
    assert length_penalty(tokens, RewardConfig()) == 0


@pytest.mark.parametrize(
    ("tokens", "accepted", "paid"),
    [
        (50, True, math.cos(math.pi / 4)),  # half as long as the shortest so far
        (50, False, 0.0),  # a failure gains nothing by being short
        (100, True, 0.0),
        (100, False, 0.0),
        (150, True, -0.7),  # cos is −0.71 there, and an accepted one loses at most 0.7
        (150, False, math.cos(math.pi * 3 / 4)),
        (200, True, -0.7),
        (200, False, -1.0),
        (10**9, False, -1.0),
    ],
)
def test_shorter_than_the_shortest_so_far_is_paid_as_in_hapo(tokens, accepted, paid):
    assert conciseness_reward(tokens, 100, accepted) == pytest.approx(paid, abs=1e-12)
    assert conciseness_reward(tokens, None, accepted) == 0
