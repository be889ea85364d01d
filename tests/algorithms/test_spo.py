"""SPO against exact results: other methods' formulas, the textbook loss, its own rules."""

import math
from dataclasses import replace

import pytest
import torch

from algorithms.base import Batch, PolicyOutput
from algorithms.spo import SPO, group_soft_value, spo_loss, success_cross_entropy, terminal_q
from tests.algorithms.tabular import BETA
from tests.compose import options_of

SLOPE, WIDTH = 100.0, 1.0


def ragged_batch(dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logp = -torch.rand(8, 6, generator=generator, dtype=dtype)
    ref_logp = -torch.rand(8, 6, generator=generator, dtype=dtype)
    mask = torch.arange(6) < torch.randint(1, 7, (8, 1), generator=generator)
    rewards = (torch.rand(8, generator=generator) < 0.5).to(dtype)
    return logp, ref_logp, mask, rewards


def prepared(logp, ref_logp, mask, rewards, group_size, **options):
    batch = Batch(
        mask=mask,
        rewards=rewards,
        keep=torch.ones_like(mask[:, 0]),
        online=torch.ones_like(mask[:, 0]),
        group_size=group_size,
        ref_logp=ref_logp,
        policy_logp=logp.detach(),
    )
    return SPO(options_of("spo", beta=BETA, **options), reward_high=1.0).prepare(batch)


def test_cross_entropy_is_the_textbook_one_where_it_is_well_behaved():
    u = torch.tensor([-8.0, -2.0, -0.5, -0.1], dtype=torch.float64)
    for v in (-6.0, -1.0, -0.3):
        p, q = math.exp(v), u.exp()
        textbook = -(p * q.log() + (1 - p) * (1 - q).log())
        ours = success_cross_entropy(u, torch.full_like(u, v), SLOPE, WIDTH)
        torch.testing.assert_close(ours, textbook, rtol=0, atol=1e-12)
    success = success_cross_entropy(u, torch.zeros_like(u), SLOPE, 1e-3)
    torch.testing.assert_close(success, -u - 0.5e-3)


def test_cross_entropy_has_its_minimum_at_the_target():
    for v in (-3.0, -0.5, -0.02, -0.001):
        u = v + torch.linspace(-0.5, 0.5, 2001, dtype=torch.float64) * min(1, -4 * v)
        loss = success_cross_entropy(u, torch.full_like(u, v), SLOPE, WIDTH)
        assert u[loss.argmin()].item() == pytest.approx(v, abs=1e-3 * max(1, -v))


def test_advantage_is_the_huber_penalty_of_the_error():
    logp, ref_logp, mask, rewards = ragged_batch()
    q0 = torch.full((8,), 0.3, dtype=torch.float64)
    inputs = (logp, ref_logp, mask, rewards, q0)
    wide = spo_loss(*inputs, beta=BETA, kind="advantage", huber_width=100.0)
    squared = spo_loss(*inputs, beta=BETA, kind="squared")
    torch.testing.assert_close(wide, squared / 2)

    error = terminal_q(logp, ref_logp, mask, q0, BETA) - rewards
    width = float(error.abs().median())  # some errors within it, some beyond
    q0.requires_grad_()
    spo_loss(*inputs, beta=BETA, kind="advantage", huber_width=width).backward()
    torch.testing.assert_close(q0.grad, error.clamp(-width, width) / len(error))


def test_the_share_of_successes_with_q_above_the_best_reward_is_a_metric():
    """Three of four responses succeed; two of the four have β Σ log π/π_ref + Q̂_0 > 1."""
    ref_logp, mask = torch.zeros(4, 2), torch.ones(4, 2, dtype=torch.bool)
    logp = torch.tensor([[2.0, 2.0], [0.1, 0.1], [3.0, 1.0], [2.0, 1.0]])
    rewards = torch.tensor([1.0, 1.0, 0.0, 1.0])
    batch = prepared(logp, ref_logp, mask, rewards, group_size=4, q0="monte_carlo")
    batch = replace(batch, q0=torch.full((4,), 0.7))
    spo = SPO(options_of("spo", beta=0.1), reward_high=1.0)
    metrics = spo.loss(PolicyOutput(logp=logp, entropy=logp), batch)[1]
    shares = [metrics[f"spo/{name}"].item() for name in ("best", "q_above_best", "best_and_above")]
    assert shares == pytest.approx([3 / 4, 2 / 4, 1 / 4])


@pytest.mark.parametrize(
    ("beta", "mean", "soft"),
    [(0.026, 0.0, 0.5), (0.1, 0.0008, 0.5), (0.3, 0.12, 0.5), (1, 0.4, 0.55)],
)
def test_the_share_of_the_slope_on_failures_where_the_policy_is_the_reference(beta, mean, soft):
    """One success in eight. The mean of r - βS is far below the soft value at a small β."""
    rewards, mask = (torch.arange(8) < 1).double(), torch.ones(8, 1, dtype=torch.bool)
    zeros, kept = torch.zeros(8, 1, dtype=torch.float64), torch.ones(8, dtype=torch.bool)
    values = rewards.mean().expand(8), group_soft_value(rewards, zeros[:, 0], kept, 8, beta)
    for value, expected in zip(values, (mean, soft), strict=True):
        logp = zeros.clone().requires_grad_(True)
        options = {"beta": beta, "kind": "cross_entropy", "reward_high": 1.0}
        spo_loss(logp, zeros, mask, rewards, value.expand(8), **options).backward()
        slopes = logp.grad.abs().flatten()
        share = float(slopes[1:].sum() / slopes.sum())
        assert share == pytest.approx(expected, abs=0.006 if expected > 0.01 else 5e-5)
