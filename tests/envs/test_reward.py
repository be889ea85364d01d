"""What each verdict is paid under each kind of reward."""

import pytest

from envs.problem import Judgement, Verdict
from envs.reward import RewardConfig, reward


def judged(verdict, passed=0, run=4, total=4, program="print(1)"):
    return Judgement(verdict=verdict, passed=passed, total=total, run=run, program=program)


ACCEPTED = judged(Verdict.ACCEPTED, passed=4)
HALF = judged(Verdict.WRONG_ANSWER, passed=2)
NO_PROGRAM = judged(Verdict.SYNTAX_ERROR, run=0, program="")
UNPARSABLE = judged(Verdict.SYNTAX_ERROR, run=0)


@pytest.mark.parametrize("verdict", set(Verdict) - {Verdict.ACCEPTED, Verdict.INFRA_ERROR})
def test_binary_pays_only_accepted(verdict):
    assert reward(judged(verdict, passed=3), RewardConfig()) == 0.0
    assert reward(ACCEPTED, RewardConfig()) == 1.0


def test_range_is_the_tasks():
    config = RewardConfig(low=-1.0, high=3.0)
    assert reward(ACCEPTED, config) == 3.0
    assert reward(HALF, config) == -1.0


def test_fraction_is_the_share_of_tests_within_the_range():
    config = RewardConfig(kind="fraction", low=-1.0, high=1.0)
    assert reward(ACCEPTED, config) == 1.0
    assert reward(HALF, config) == 0.0
    assert reward(UNPARSABLE, config) == -1.0
    assert reward(NO_PROGRAM, config) == -1.0


def test_shaped_charges_for_no_program_and_only_for_that():
    config = RewardConfig(kind="shaped", no_program_penalty=0.25)
    assert reward(NO_PROGRAM, config) == -0.25
    assert reward(UNPARSABLE, config) == 0.0
    assert reward(HALF, config) == 0.5


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
    [({"kind": "dense"}, "binary"), ({"low": 1.0}, "low"), ({"no_program_penalty": -1}, "penalty")],
)
def test_impossible_settings_are_refused(wrong, names):
    with pytest.raises(ValueError, match=names):
        RewardConfig(**wrong)
