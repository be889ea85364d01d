"""The soft value of a prompt against enumeration and its closed form."""

import itertools
import math

import pytest
import torch

from algorithms.spo import group_soft_value, pooled_soft_value, soft_value
from tests.algorithms.tabular import BETA, PREFIXES, VOCABULARY, table_logp


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


def writers(count):
    """log μ of all responses under `count` random policies."""
    generator = torch.Generator().manual_seed(4)
    tables = torch.randn(count, PREFIXES, VOCABULARY, generator=generator, dtype=torch.float64)
    return [table_logp(table).sum(-1) for table in tables]


def test_the_groups_soft_value_is_unbiased_from_two_writers(world):
    """E[e^{V̂/β}] = e^{V/β}, by enumeration of all pairs of one response from each writer."""
    ref, (one, other) = world["ref_logp"].sum(-1), writers(2)
    first, second = torch.cartesian_prod(torch.arange(27), torch.arange(27)).T
    drawn = torch.stack([first, second], 1).flatten()  # groups of two
    s = torch.stack([(one - ref)[first], (other - ref)[second]], 1).flatten()
    kept = torch.ones(len(drawn), dtype=torch.bool)
    values = group_soft_value(world["rewards"][drawn], s, kept, 2, BETA)
    weights = (one[first] + other[second]).exp()
    expected = (weights * (values / BETA).exp()).sum()
    assert expected.item() == pytest.approx((world["q0"] / BETA).exp().item(), rel=1e-12)
    plain = group_soft_value(world["rewards"][drawn], 0 * s, kept, 2, BETA)
    biased = (weights * (plain / BETA).exp()).sum()
    assert abs(biased.item() / expected.item() - 1) > 0.01


def test_the_groups_soft_value_has_no_variance_at_the_optimum(world):
    s = world["optimum"].log() - world["ref_logp"].sum(-1)
    kept = torch.arange(27) % 9 != 4
    values = group_soft_value(world["rewards"], s, kept, 3, BETA)
    torch.testing.assert_close(values, world["q0"].expand(9), rtol=0, atol=1e-12)


def test_a_group_without_log_probs_has_no_soft_value():
    zeros, none = torch.zeros(4), torch.zeros(4, dtype=torch.bool)
    assert group_soft_value(zeros, zeros, none, 2, BETA).isneginf().all()
