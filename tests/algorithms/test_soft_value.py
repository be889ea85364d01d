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


def test_soft_value_works_along_any_dimension():
    rewards = torch.rand(4, 6, dtype=torch.float64)
    by_rows = torch.stack([soft_value(row, BETA) for row in rewards])
    torch.testing.assert_close(soft_value(rewards, BETA, dim=1), by_rows)
    torch.testing.assert_close(soft_value(rewards.T, BETA, dim=0), by_rows)


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


def test_pooled_soft_value_with_nothing_to_pool_is_the_plain_one():
    rewards = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0])
    none = torch.zeros(0)
    assert pooled_soft_value(rewards, none, none, 0.1).item() == pytest.approx(
        soft_value(rewards.double(), 0.1).item(), abs=1e-12
    )


def self_normalised(rewards, log_weights, beta):
    """(value, effective sample size) with weights divided by their sum, as is often done."""
    total = log_weights.logsumexp(-1)
    value = beta * ((rewards / beta + log_weights).logsumexp(-1) - total)
    return value, torch.exp(2 * total - (2 * log_weights).logsumexp(-1))


@pytest.mark.parametrize("solves", [0.05, 0.3, 0.9, 0.999])
def test_pooling_is_nearer_than_the_reference_alone_however_good_the_policy(solves):
    """π_ref solves the prompt in 5 %; 64 responses are of a policy that solves it in `solves`."""
    beta, p, repeats = 0.1, 0.05, 1000
    generator = torch.Generator().manual_seed(0)
    truth = soft_value(torch.tensor([1.0] * 5 + [0.0] * 95, dtype=torch.float64), beta)
    reference = (torch.rand(repeats, 16, generator=generator) < p).double()
    rewards = (torch.rand(repeats, 64, generator=generator) < solves).double()
    log_weights = torch.where(
        rewards > 0, math.log(p / solves), math.log((1 - p) / (1 - solves))
    ).double()

    def error(values):
        return (torch.stack(list(values)) - truth).square().mean().sqrt().item()

    alone = error(soft_value(row, beta) for row in reference)
    rows = list(zip(reference, rewards, log_weights, strict=True))
    pooled = error(pooled_soft_value(*row, beta) for row in rows)
    assert alone > 0.4
    assert pooled < 0.15
    if solves > 0.9:  # no failures are left to correct normalised weights
        values, sizes = zip(*(self_normalised(r, w, beta) for _, r, w in rows), strict=True)
        assert torch.stack(sizes).median() > 60
        assert error(values) > 5 * pooled
