"""SPO against exact results: other methods' formulas, the textbook loss, its own rules."""

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch

from algorithms.base import Batch, PolicyOutput
from algorithms.spo import (
    SPO,
    LossKind,
    SPOConfig,
    log1mexp,
    spo_loss,
    success_cross_entropy,
    terminal_q,
)
from envs.command_line import parse_values
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


def test_group_value_is_trajectory_balance_with_vargrad():
    """TBA (2503.18929): (log Z + S − r/β)² with log Z = sg mean(r/β − S); ours is β² times it."""
    logp, ref_logp, mask, rewards = ragged_batch()
    batch = prepared(logp, ref_logp, mask, rewards, group_size=4, q0="group")
    ours = spo_loss(logp, ref_logp, mask, rewards, batch.q0, beta=BETA, kind="squared")
    s = ((logp - ref_logp) * mask).sum(-1)
    gap = rewards / BETA - s
    log_z = gap.view(2, 4).mean(-1).repeat_interleave(4)
    trajectory_balance = (log_z - gap).square().mean()
    assert ours.item() == pytest.approx(BETA**2 * trajectory_balance.item(), abs=1e-12)


def test_group_value_is_the_contrastive_pair_loss():
    """CoPG/IPO form: the mean over ordered pairs of ½[(r − βS) − (r′ − βS′)]²."""
    logp, ref_logp, mask, rewards = ragged_batch(seed=5)
    batch = prepared(logp, ref_logp, mask, rewards, group_size=4, q0="group")
    ours = spo_loss(logp, ref_logp, mask, rewards, batch.q0, beta=BETA, kind="squared")
    error = (rewards - BETA * ((logp - ref_logp) * mask).sum(-1)).view(2, 4)
    pairs = 0.5 * (error.unsqueeze(-1) - error.unsqueeze(-2)).square()
    assert ours.item() == pytest.approx(pairs.mean().item(), abs=1e-12)


def test_at_step_0_the_terminal_q_is_the_initial_value():
    logp, _, mask, _ = ragged_batch(torch.float32)
    q0 = torch.rand(8)
    assert torch.equal(terminal_q(logp, logp.clone(), mask, q0, BETA), q0)


def test_the_log_ratio_is_summed_over_response_tokens_only():
    logp, ref_logp = torch.tensor([[-1.0, -2.0, -4.0]]), torch.tensor([[-2.0, -2.5, -9.0]])
    mask = torch.tensor([[True, True, False]])
    q = terminal_q(logp, ref_logp, mask, torch.tensor([0.25]), 2.0)
    assert q.item() == pytest.approx(0.25 + 2.0 * 1.5)


@pytest.mark.parametrize("kind", get_args(LossKind))
def test_nan_and_infinity_at_masked_positions_reach_nothing(kind):
    logp, ref_logp, mask, rewards = ragged_batch()
    q0 = torch.full((8,), 0.4, dtype=torch.float64)
    dirty = logp.masked_fill(~mask, float("nan")).requires_grad_(True)
    dirty_ref = ref_logp.masked_fill(~mask, -float("inf"))
    clean = logp.clone().requires_grad_(True)
    options = {"beta": BETA, "kind": kind, "reward_high": 1.0}
    spo_loss(dirty, dirty_ref, mask, rewards, q0, **options).backward()
    spo_loss(clean, ref_logp, mask, rewards, q0, **options).backward()
    torch.testing.assert_close(dirty.grad, clean.grad)
    assert torch.equal(clean.grad[~mask], torch.zeros_like(clean.grad[~mask]))


def test_cross_entropy_is_the_textbook_one_where_it_is_well_behaved():
    u = torch.tensor([-8.0, -2.0, -0.5, -0.1], dtype=torch.float64)
    for v in (-6.0, -1.0, -0.3):
        p, q = math.exp(v), u.exp()
        textbook = -(p * q.log() + (1 - p) * (1 - q).log())
        ours = success_cross_entropy(u, torch.full_like(u, v), SLOPE, WIDTH)
        torch.testing.assert_close(ours, textbook, rtol=0, atol=1e-12)
    success = success_cross_entropy(u, torch.zeros_like(u), SLOPE, 1e-3)
    torch.testing.assert_close(success, -u - 0.5e-3)


def test_cross_entropy_reads_rewards_relative_to_the_best():
    logp, ref_logp, mask, rewards = ragged_batch()
    q0 = torch.full((8,), 0.1, dtype=torch.float64)
    shifted = spo_loss(logp, ref_logp, mask, rewards - 1, q0 - 1, beta=BETA, kind="cross_entropy")
    unshifted = spo_loss(
        logp, ref_logp, mask, rewards, q0, beta=BETA, kind="cross_entropy", reward_high=1.0
    )
    torch.testing.assert_close(unshifted, shifted)


def test_cross_entropy_is_finite_and_pulls_failures_back_whatever_q_is():
    u = torch.tensor([-1e4, -50.0, -1e-3, -1e-8, 0.0, 1e-8, 1e-3, 1.0, 50.0], dtype=torch.float32)
    for v in (-1e-6, -0.05, -1.0, -10.0):
        x = u.clone().requires_grad_(True)
        loss = success_cross_entropy(x, torch.full_like(u, v), SLOPE, WIDTH)
        loss.sum().backward()
        assert torch.isfinite(loss).all()
        assert torch.isfinite(x.grad).all()
        assert (x.grad[u > 0] == SLOPE).all(), f"Q above the best reward at target {v}"
        assert (x.grad[u < min(v - 1e-3, -1e-3)] < 0).all(), f"Q too low at target {v}"
        assert x.grad.abs().max() <= SLOPE * (1 + 1e-5)


def test_cross_entropy_pulls_a_success_up_to_the_best_reward_and_leaves_it_alone_there():
    u = torch.tensor([-1e4, -50.0, -1e-3, 0.0, 1e-3, 1.0, 50.0], requires_grad=True)
    loss = success_cross_entropy(u, torch.zeros(7), SLOPE, 2.0)
    loss.sum().backward()
    assert u.grad.tolist() == pytest.approx([-1.0, -1.0, -0.0005, 0.0, 0.0, 0.0, 0.0])
    assert loss[3:].tolist() == [0.0] * 4


def test_cross_entropy_has_its_minimum_at_the_target():
    for v in (-3.0, -0.5, -0.02, -0.001):
        u = v + torch.linspace(-0.5, 0.5, 2001, dtype=torch.float64) * min(1, -4 * v)
        loss = success_cross_entropy(u, torch.full_like(u, v), SLOPE, WIDTH)
        assert u[loss.argmin()].item() == pytest.approx(v, abs=1e-3 * max(1, -v))


def test_a_reward_above_the_best_is_refused():
    logp, ref_logp, mask, rewards = ragged_batch()
    with pytest.raises(ValueError, match="exceeds reward_high=0"):
        spo_loss(logp, ref_logp, mask, rewards, rewards, beta=1.0, kind="cross_entropy")


def test_log1mexp_is_exact_at_both_ends():
    x = torch.tensor([-1e-12, -1e-3, -0.6931, -0.7, -5.0, -40.0, -800.0], dtype=torch.float64)
    expected = [math.log(-math.expm1(v)) if v > -1 else math.log1p(-math.exp(v)) for v in x]
    torch.testing.assert_close(log1mexp(x), torch.tensor(expected, dtype=torch.float64))


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


def test_only_the_group_value_needs_groups_and_only_the_others_reference_samples():
    def needs(**options):
        return SPO(options_of("spo", **options), 1.0).needs

    assert needs(q0="monte_carlo").initial_value == "monte_carlo"
    assert not needs(q0="monte_carlo").groups
    assert needs(q0="group").groups
    assert needs(q0="group").initial_value == "none"
    for q0 in ("monte_carlo", "group", "online"):
        assert needs(q0=q0).critic == "none"
        assert needs(q0=q0).reference
        assert not needs(q0=q0).behaviour


def test_loss_of_the_class_is_the_function_and_its_metrics_are_the_batchs():
    logp, ref_logp, mask, rewards = ragged_batch(torch.float32)
    batch = prepared(logp, ref_logp, mask, rewards, group_size=4, q0="group")
    spo = SPO(options_of("spo", beta=BETA, q0="group"), reward_high=1.0)
    loss, metrics = spo.loss(PolicyOutput(logp=logp, entropy=logp), batch)
    expected = spo_loss(
        logp,
        ref_logp,
        mask,
        rewards,
        batch.q0,
        beta=BETA,
        kind="cross_entropy",
        reward_high=1.0,
        slope_bound=spo.config.slope_bound,
    )
    assert loss.item() == expected.item()
    assert metrics["spo/q_initial"].item() == pytest.approx(batch.q0.mean().item())


def test_the_share_of_successes_with_q_above_the_best_reward_is_a_metric():
    """Three of four responses succeed; two of the four have β Σ log π/π_ref + Q̂_0 > 1."""
    ref_logp, mask = torch.zeros(4, 2), torch.ones(4, 2, dtype=torch.bool)
    logp = torch.tensor([[2.0, 2.0], [0.1, 0.1], [3.0, 1.0], [2.0, 1.0]])
    rewards = torch.tensor([1.0, 1.0, 0.0, 1.0])
    batch = prepared(logp, ref_logp, mask, rewards, group_size=4, q0="group")
    batch = replace(batch, q0=torch.full((4,), 0.7))
    spo = SPO(options_of("spo", beta=0.1, q0="group"), reward_high=1.0)
    metrics = spo.loss(PolicyOutput(logp=logp, entropy=logp), batch)[1]
    shares = [metrics[f"spo/{name}"].item() for name in ("best", "q_above_best", "best_and_above")]
    assert shares == pytest.approx([3 / 4, 2 / 4, 1 / 4])


@pytest.mark.parametrize(
    "bad",
    [
        {"beta": 0},
        {"loss": "l2"},
        {"q0": "none"},
        {"q0_samples": 0},
        {"slope_bound": 0.5},
        {"slope_width": 0},
        {"exponent": "r"},
    ],
)
def test_bad_options_are_named(bad):
    with pytest.raises(ValueError, match=f"algo.{next(iter(bad))}"):
        parse_values(SPOConfig, bad, "algo")
