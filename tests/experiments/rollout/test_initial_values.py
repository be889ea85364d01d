"""SPO's initial values: from disk, from the reference, from recent responses."""

import math

import pytest
import torch

import algorithms
from algorithms.base import Batch
from algorithms.spo import soft_value
from envs.problem import Judgement, Problem, Verdict
from experiments.rollout.initial_values import InitialValues
from experiments.sample import Origin, PromptedProblem, Sample

BETA = 0.5


REFERENCE = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)


class FixedRewards:
    """One reference response of four is right, whatever the prompt."""

    def rewards_of(self, prompts):
        return [REFERENCE] * len(prompts)


def initial_values(online):
    spo = algorithms.make("spo", beta=BETA, q0="online" if online else "monte_carlo")
    return InitialValues(FixedRewards(), spo)


MONTE_CARLO = float(soft_value(REFERENCE, BETA))


def samples(rewards, name="p"):
    prompt = PromptedProblem(Problem(name, "", (), ()), (2, 3))
    judgement = Judgement(Verdict.WRONG_ANSWER, 0, 1, 1, "")
    origin = Origin("policy", "run", 1, 0)
    return [Sample(prompt, (4, 5), (-1.0, -1.0), judgement, r, False, origin) for r in rewards]


def batch(rewards, log_weights):
    shape = (len(rewards), 2)
    weights = torch.tensor(log_weights).unsqueeze(-1) / 2
    ones = torch.ones(len(rewards), dtype=torch.bool)
    return Batch(
        mask=torch.ones(shape, dtype=torch.bool),
        rewards=torch.tensor(rewards),
        keep=ones,
        online=ones,
        group_size=len(rewards),
        behaviour_logp=torch.full(shape, -1.0),
        ref_logp=-1.0 + weights.expand(shape),
    )


def test_without_online_the_monte_carlo_value_stands():
    values = initial_values(online=False)
    rewards = [1.0, 0.0]
    for _ in range(3):
        got = values.compute(samples(rewards), batch(rewards, [0.0, 0.0]))
        assert got.tolist() == pytest.approx([MONTE_CARLO] * 2)


def test_online_pools_earlier_responses_with_the_references():
    values = initial_values(online=True)
    rewards = [1.0, 0.0, 0.0]
    first = values.compute(samples(rewards), batch(rewards, [0.0] * 3))
    assert first.tolist() == pytest.approx([MONTE_CARLO] * 3)
    second = values.compute(samples([0.0] * 3), batch([0.0] * 3, [0.0] * 3))
    pooled = torch.tensor([*REFERENCE, *rewards])
    assert second.tolist() == pytest.approx([float(soft_value(pooled, BETA))] * 3)


def test_responses_are_weighted_by_reference_over_rollout_policy():
    values = initial_values(online=True)
    rewards, weights = [1.0, 0.0], [math.log(3.0), 0.0]
    values.compute(samples(rewards), batch(rewards, weights))
    total = 3 + math.exp(1 / BETA) + 3 * math.exp(1 / BETA) + 1
    expected = BETA * math.log(total / 6)
    assert values.compute(samples([0.0]), batch([0.0], [0.0])).item() == pytest.approx(expected)


def test_a_reward_that_float32_rounds_down_still_ties_with_the_references():
    class Shaped(FixedRewards):
        def rewards_of(self, prompts):
            return [torch.tensor([0.7, 0.7, 1.0, 1.0], dtype=torch.float64)] * len(prompts)

    values = InitialValues(Shaped(), algorithms.make("qrpo"))
    assert torch.tensor(0.7).item() < 0.7
    assert values.compute(samples([0.7]), batch([0.7], [0.0])).tolist() == [0.5]


def test_a_quantile_is_the_share_of_reference_rewards_that_are_no_better():
    values = InitialValues(FixedRewards(), algorithms.make("qrpo"))
    rewards = [1.0, 0.0, 0.5, -1.0]
    got = values.compute(samples(rewards), batch(rewards, [0.0] * 4))
    assert got.tolist() == [1.0, 0.75, 0.75, 0.0]
