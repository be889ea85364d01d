"""The soft value of a prompt against enumeration and its closed form."""

import itertools
import math

import pytest
import torch

from algorithms.spo import pooled_soft_value, soft_value
from tests.algorithms.tabular import (
    BETA,
    PREFIXES,
    VOCABULARY,
    table_logp,
)


def test_soft_value_equals_enumeration(world):
    weights = world["ref_logp"].sum(-1).exp()
    counts = (weights * 10_000).round().long()
    sampled = world["rewards"].repeat_interleave(counts)
    assert soft_value(sampled, BETA).item() == pytest.approx(world["q0"].item(), abs=1e-3)


def test_monte_carlo_soft_value_converges(world):
    generator = torch.Generator().manual_seed(0)
    weights = world["ref_logp"].sum(-1).exp()
    errors = []
    for count in (16, 256, 4096, 65536):
        drawn = torch.multinomial(weights, 64 * count, replacement=True, generator=generator)
        values = soft_value(world["rewards"][drawn].view(64, count), BETA)
        errors.append((values - world["q0"]).square().mean().sqrt().item())
    assert errors[-1] < 3e-3
    assert all(later < earlier / 2 for earlier, later in itertools.pairwise(errors))


@pytest.mark.parametrize("beta", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("solved", [0, 1, 7, 16])
def test_soft_value_of_binary_rewards_has_its_closed_form(beta, solved):
    rewards = torch.tensor([1.0] * solved + [0.0] * (16 - solved))
    p = solved / 16
    # β log(1 − p + p e^{1/β}), with the exponent taken out: e^{100} overflows float32
    expected = 1 + beta * math.log((1 - p) * math.exp(-1 / beta) + p) if p else 0.0
    assert soft_value(rewards, beta).item() == pytest.approx(expected, abs=1e-6)
    assert soft_value(rewards, beta).dtype == torch.float32


def test_pooled_soft_value_reweights_another_policys_responses(world):
    generator = torch.Generator().manual_seed(1)
    behaviour = torch.randn(PREFIXES, VOCABULARY, generator=generator, dtype=torch.float64)
    log_mu = table_logp(behaviour).sum(-1)
    drawn = torch.multinomial(log_mu.exp(), 200_000, replacement=True, generator=generator)
    log_weights = (world["ref_logp"].sum(-1) - log_mu)[drawn]
    few = world["rewards"][:2]
    value = pooled_soft_value(few, world["rewards"][drawn], log_weights, BETA)
    assert value.item() == pytest.approx(world["q0"].item(), abs=5e-3)
    plain = soft_value(world["rewards"][drawn], BETA)
    assert abs(plain.item() - world["q0"].item()) > 0.02
