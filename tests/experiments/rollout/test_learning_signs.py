"""What a run cannot learn from is said, with the key to change; a sound batch says nothing."""

from dataclasses import replace

import pytest

from envs.problem import Judgement, Problem, Verdict
from experiments.rollout.learning_signs import LearningSigns
from experiments.sample import Origin, PromptedProblem, Sample
from tests.compose import options_of, run_config

GRPO_OPTIONS = options_of("grpo", core="algorithms.grpo.GRPO")
PROBLEMS = [PromptedProblem(Problem(f"p{i}", "", (), ()), (1,)) for i in range(2)]


def sample(problem, accepted, truncated=False, program="print(1)", **changes):
    verdict = Verdict.ACCEPTED if accepted else Verdict.WRONG_ANSWER
    judgement = Judgement(verdict, int(accepted), 1, 1, program)
    made = Sample(
        prompt=PROBLEMS[problem],
        tokens=(2, 3),
        logps=(-1.0, -1.0),
        judgement=judgement,
        reward=float(accepted),
        truncated=truncated,
        origin=Origin("policy", "run", 1, 0),
    )
    return replace(made, **changes)


def lines(batch, kl=float("nan"), algo=None, **changes):
    config = run_config(algo or GRPO_OPTIONS)
    for key, value in changes.items():
        group, name = key.split("__")
        setattr(getattr(config, group), name, value)
    signs = LearningSigns(config)
    signs.note(batch)
    signs.note(batch)
    return signs.lines(kl)


MIXED = [sample(0, True), sample(0, False), sample(1, False), sample(1, False)]


def test_a_batch_with_different_rewards_says_nothing():
    assert lines(MIXED, kl=0.2) == []


@pytest.mark.parametrize(
    ("batch", "said", "key"),
    [
        ([sample(0, False), sample(0, False)], "no response was accepted", "train.offline_share"),
        ([sample(0, True), sample(0, True)], "every response was accepted", "harder"),
        (
            [sample(0, True), sample(0, True), sample(1, False), sample(1, False)],
            "no problem's responses had different rewards",
            "train.group_size=8",
        ),
        ([*MIXED, sample(0, False, truncated=True)], "20% of the responses were cut off", "tokens"),
        (
            [replace(s, judgement=replace(s.judgement, program="")) for s in MIXED],
            "100%",
            "few_shot",
        ),
    ],
    ids=["no reward", "all accepted", "no spread", "cut off", "no program"],
)
def test_each_sign_is_one_line_with_its_key(batch, said, key):
    [line] = lines(batch)
    assert said in line and key in line and line.startswith("NOTE: ")


def test_a_policy_that_did_not_move_is_said_at_the_end():
    [line] = lines(MIXED, kl=0.0)
    assert "algo.learning_rate" in line


def test_without_rewards_to_learn_from_no_higher_rate_is_advised():
    [line] = lines([sample(0, False), sample(0, False)], kl=0.0)
    assert "no response was accepted in 2 steps" in line


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_groups_without_the_data_sets_programs_are_said_where_they_should_have_some(share):
    batch = [replace(sample(0, True), logps=None), sample(1, False)]
    found = lines(batch, train__offline_share=share, task__max_response_tokens=96)
    said = [line for line in found if "data set's programs, but responses" in line]
    assert len(said) == (share > 0)
    assert all("50% of the groups" in s and "task.max_response_tokens=96" in s for s in said)


def test_offline_programs_alone_say_nothing():
    assert lines([replace(s, logps=None) for s in MIXED[2:]]) == []


def test_failures_beside_the_data_sets_programs_are_no_sign():
    batch = [sample(0, False), sample(0, False), replace(sample(0, True), logps=None)]
    assert lines(batch, train__offline_share=0.5) == []


@pytest.mark.parametrize(
    ("algo", "train", "mixes"),
    [
        (GRPO_OPTIONS, {}, False),
        (GRPO_OPTIONS, {"train__missing_logprobs": "reference"}, True),
        (options_of("spo", core="algorithms.spo.SPO"), {}, True),
    ],
)
def test_the_data_sets_programs_are_advised_where_the_objective_takes_them(algo, train, mixes):
    (line,) = lines([sample(0, False), sample(0, False)], algo=algo, **train)
    assert ("mix in the data set's programs (train.offline_share)" in line) is mixes
    assert line.endswith("or begin with supervised training (algo=sft train.offline_share=1)")
