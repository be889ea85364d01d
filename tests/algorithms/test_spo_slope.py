"""The slope of SPO's cross-entropy where Q is near the best reward."""

import math

import pytest
import torch

import algorithms
from algorithms.base import Batch, PolicyOutput
from algorithms.spo import success_cross_entropy
from tests.compose import options_of

BOUND = 1.0


def slope(u, v, width=1.0, bound=BOUND):
    u = torch.as_tensor(u, dtype=torch.float64).clone().requires_grad_(True)
    success_cross_entropy(u, torch.full_like(u, v), bound, width).sum().backward()
    return u.grad


def group_slopes(log_ratios, rewards, dtype=torch.float64, size=8, **options):
    """d loss / d S_i of SPO with q0=group for responses of two tokens with these S (rows,)."""
    s = torch.as_tensor(log_ratios, dtype=dtype)
    ref_logp = torch.full((len(s), 2), -3.0, dtype=dtype)
    logp = (ref_logp + s.unsqueeze(-1) / 2).requires_grad_(True)
    kept = torch.ones(len(s), dtype=torch.bool)
    batch = Batch(
        mask=torch.ones_like(logp, dtype=torch.bool),
        rewards=torch.as_tensor(rewards, dtype=dtype).expand(len(s)),
        keep=kept,
        online=kept,
        group_size=size,
        ref_logp=ref_logp,
        policy_logp=logp.detach(),
    )
    spo = algorithms.make("spo", **{"q0": "group"} | options)
    spo.loss(PolicyOutput(logp=logp, entropy=logp), spo.prepare(batch))[0].backward()
    torch.testing.assert_close(logp.grad[:, 0], logp.grad[:, 1])
    return logp.grad[:, 0]


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
def test_a_success_has_the_stated_loss_and_slope(width):
    u = torch.linspace(-3 * width, width, 401, dtype=torch.float64)
    stated = torch.where(u < -width, -u - width / 2, u.clamp(max=0).square() / (2 * width))
    loss = success_cross_entropy(u, torch.zeros_like(u), BOUND, width)
    torch.testing.assert_close(loss, stated)
    torch.testing.assert_close(slope(u, 0.0, width), (u / width).clamp(-1, 0))


@pytest.mark.parametrize("v", [0.0, -1e-3, -0.1, -1.0, -10.0])
def test_the_slope_is_that_of_finite_differences(v):
    u = torch.linspace(-12, 3, 1200, dtype=torch.float64)
    step = 1e-6
    target = torch.full_like(u, v)
    up, down = (success_cross_entropy(u + h, target, BOUND, 1.0) for h in (step, -step))
    turn = math.log1p(math.expm1(v) / (1 + BOUND))
    smooth = (u - turn).abs() > 2 * step
    assert smooth.sum() > 1000
    torch.testing.assert_close(((up - down) / (2 * step))[smooth], slope(u, v)[smooth])


@pytest.mark.parametrize("v", [0.0, -1e-3, -0.1, -1.0, -10.0])
def test_the_slope_is_continuous_everywhere(v):
    """At a success's width and at its target, at a failure's target and where its bound begins."""
    step = 1e-7
    turn = math.log1p(math.expm1(v) / (1 + BOUND))
    u = torch.cat([torch.linspace(-12, 1, 2001).double(), torch.tensor([-1.0, 0, v, turn])])
    most = 1.0 if v == 0 else (1 + BOUND) ** 2 / -math.expm1(v)  # change per nat
    jump = (slope(u + step, v) - slope(u - step, v)).abs().max()
    assert jump < 2.1 * step * most


def test_just_below_the_best_reward_the_slope_is_steep_but_rounding_does_not_decide_it():
    """It goes from −1/2 to nearly the bound, 1, from 1 − p below the target to half of it above."""
    for gap in (1e-1, 1e-2, 1e-3):
        v = math.log1p(-gap)
        low, at, high = slope([v - gap, v, v + gap / 2], v).tolist()
        assert low == pytest.approx(-0.5, abs=0.06)
        assert at == pytest.approx(0, abs=1e-9)
        assert high == pytest.approx(0.95, abs=0.1)
    s = torch.full((8,), 2.3)
    for reward in (0.5, 0.9, 0.99, 0.999):
        equal = group_slopes(s, reward, torch.float32)
        assert equal.abs().max() < 1e-3 / 8, f"equal responses of reward {reward}"


@pytest.mark.parametrize("beta", [0.029, 0.1, 1.0])
def test_equal_successes_have_no_slope_whatever_was_rounded(beta):
    """Each slope was 0 or −1/8, as Q_T = 1 + 1e-7 or 1 − 1e-7 decided."""
    generator = torch.Generator().manual_seed(0)
    s = (4 * torch.randn(50, 1, generator=generator)).expand(50, 8).flatten()
    noisy = s + 1e-6 * torch.randn(400, generator=generator)  # another layout of the batch
    for log_ratios in (s, noisy):
        slopes = group_slopes(log_ratios, 1.0, torch.float32, beta=beta)
        assert slopes.abs().max() * 400 < 1e-4


@pytest.mark.parametrize("width", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("beta", [0.03, 0.5])
@pytest.mark.parametrize("exponent", ["q_over_beta", "q"])
def test_an_accepted_group_has_the_gradient_of_its_derivation(width, beta, exponent):
    """Q_i = 1 + β (S_i − mean S): the slope in S_i is clamp((S_i − mean S)/w, −1, 0)/n, for any β.

    With exponent=q it is β clamp(β (S_i − mean S)/w, −1, 0)/n.

    Those below the mean are drawn up to it. So the optimum keeps the reference's odds among
    successes. Nothing draws the others down.
    """
    generator = torch.Generator().manual_seed(1)
    s = 2 * torch.randn(16, generator=generator, dtype=torch.float64)
    slopes = group_slopes(s, 1.0, beta=beta, slope_width=width, exponent=exponent)
    factor = beta if exponent == "q" else 1.0
    centred = (s.view(2, 8) - s.view(2, 8).mean(-1, keepdim=True)).flatten()
    expected = factor * (factor * centred / width).clamp(-1, 0) / 16
    torch.testing.assert_close(slopes, expected)
    assert slopes.min() < -0.3 * min(1.0, factor / width) * factor / 16


def residue(width, rate, steps):
    """Uneven successes of a solved prompt → total variation from even ones, after so many steps.

    Four equal responses under π_ref, all accepted; groups of eight and q0=group, plain gradient
    steps; the mean over 64 runs. The first step changes S by about rate/4 nats.
    """
    generator = torch.Generator().manual_seed(0)
    logits = torch.tensor([2.0, 0.0, 0.0, 0.0], dtype=torch.float64).expand(64, 4)
    for _ in range(steps):
        logp = logits.log_softmax(-1)
        drawn = torch.multinomial(logp.exp(), 8, replacement=True, generator=generator)
        s = (logp - math.log(0.25)).gather(-1, drawn)
        pull = slope(s - s.mean(-1, keepdim=True), 0.0, width) / 8
        change = torch.zeros_like(logits).scatter_add(-1, drawn, pull)
        logits = logits - rate * (change - pull.sum(-1, keepdim=True) * logp.exp())
    return 0.5 * (logits.softmax(-1) - 0.25).abs().sum(-1).mean().item()


def test_the_default_width_is_the_narrowest_that_settles_with_room():
    """Steps of one nat: 0.5 and 1 settle, 0.25 never does, 2 takes longer. Of two nats: from 1 on.

    Widths of 0.5, 1 and 2 were compared on this problem alone.
    """
    one = {width: residue(width, rate=4.0, steps=20) for width in (0.25, 0.5, 1.0, 2.0)}
    assert one[0.25] > 0.1
    assert one[0.5] < 1e-3 and one[1.0] < 1e-3
    assert one[2.0] > 10 * one[1.0]
    two = {width: residue(width, rate=8.0, steps=60) for width in (0.5, 1.0)}
    assert two[0.5] > 0.1
    assert two[1.0] < 0.01
    assert options_of("spo").slope_width == 1.0
