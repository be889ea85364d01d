"""SPO's initial values: from disk, from the reference, from recent responses."""

import math

import pytest
import torch

from algorithms.base import Batch
from algorithms.spo import soft_value
from envs.problem import Judgement, Problem, Verdict
from experiments.initial_values import InitialValues
from experiments.ledger import Ledger
from experiments.samples import PromptedProblem, Sample

BETA = 0.5


class FixedValues:
    """A Monte-Carlo value of 0.3 for every prompt."""

    beta = BETA

    def of(self, prompts, ledger):
        return [0.3] * len(prompts)


def samples(rewards, name="p"):
    prompt = PromptedProblem(Problem(name, "", (), ()), (2, 3))
    judgement = Judgement(Verdict.WRONG_ANSWER, 0, 1, 1, "")
    return [Sample(prompt, (4, 5), (-1.0, -1.0), judgement, r, False) for r in rewards]


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
    values = InitialValues(FixedValues(), Ledger(), online=False, min_ess=1)
    rewards = [1.0, 0.0]
    for _ in range(3):
        got = values.of(samples(rewards), batch(rewards, [0.0, 0.0]))
        assert got.tolist() == pytest.approx([0.3, 0.3])


def test_online_takes_over_from_earlier_responses_only():
    values = InitialValues(FixedValues(), Ledger(), online=True, min_ess=2)
    rewards = [1.0, 0.0, 0.0]
    first = values.of(samples(rewards), batch(rewards, [0.0] * 3))
    assert first.tolist() == pytest.approx([0.3] * 3)
    second = values.of(samples([0.0] * 3), batch([0.0] * 3, [0.0] * 3))
    assert second.tolist() == pytest.approx([float(soft_value(torch.tensor(rewards), BETA))] * 3)


def test_too_few_effective_responses_leave_the_monte_carlo_value():
    values = InitialValues(FixedValues(), Ledger(), online=True, min_ess=2)
    rewards = [1.0, 0.0, 0.0]
    values.of(samples(rewards), batch(rewards, [50.0, 0.0, 0.0]))
    assert values.of(samples([0.0]), batch([0.0], [0.0])).item() == pytest.approx(0.3)


def test_responses_are_weighted_by_reference_over_writer():
    values = InitialValues(FixedValues(), Ledger(), online=True, min_ess=1)
    rewards, weights = [1.0, 0.0], [math.log(3.0), 0.0]
    values.of(samples(rewards), batch(rewards, weights))
    expected = BETA * math.log((3 * math.exp(1 / BETA) + 1) / 4)
    assert values.of(samples([0.0]), batch([0.0], [0.0])).item() == pytest.approx(expected)
