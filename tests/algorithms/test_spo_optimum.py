"""SPO's own optimum, by frozen and by fresh data, under an exact and a noisy initial value."""

import math

import pytest
import torch

from algorithms.grpo import group_advantages
from algorithms.spo import SPOConfig, soft_value, spo_loss, success_cross_entropy
from tests.algorithms.tabular import BETA, MASK, RESPONSES, fit, table_logp, total_variation

SLOPE_BOUND = 100.0  # wide: the straight part of the loss has no curvature for L-BFGS


@pytest.mark.parametrize(
    ("kind", "bound"), [("squared", 1e-3), ("advantage", 1e-3), ("cross_entropy", 5e-3)]
)
def test_frozen_off_policy_data_lead_to_the_exact_optimum(world, kind, bound):
    q0 = world["q0"].expand(len(RESPONSES))

    def loss_of(logp):
        return spo_loss(
            logp,
            world["ref_logp"],
            MASK,
            world["rewards"],
            q0,
            beta=BETA,
            kind=kind,
            slope_bound=SLOPE_BOUND,
        )

    table = fit(world, loss_of)
    assert total_variation(world["reference"], world["optimum"]) > 0.05
    assert total_variation(table, world["optimum"]) < bound


def test_a_policy_gradient_on_the_same_data_misses_the_optimum(world):
    advantages = group_advantages(world["rewards"], len(RESPONSES))
    table = world["reference"].clone().requires_grad_(True)
    optimiser = torch.optim.Adam([table], lr=0.05)
    for _ in range(500):
        optimiser.zero_grad()
        logp = table_logp(table)
        kl = (logp - world["ref_logp"]).sum(-1)
        (-(advantages * logp.sum(-1)) + BETA * kl).mean().backward()
        optimiser.step()
    assert total_variation(table.detach(), world["optimum"]) > 0.05


def on_policy_optimum(p, q0, *, start=None, steps=4000):
    """Where on-policy SPO ends, in exact expectation → (8,) probabilities.

    One prompt, one token: four successes share p under π_ref, four failures the rest.
    """
    beta = 0.1
    ref_logp = torch.tensor([p / 4] * 4 + [(1 - p) / 4] * 4, dtype=torch.float64).log()
    rewards = torch.tensor([1.0] * 4 + [0.0] * 4, dtype=torch.float64)
    logits = (ref_logp if start is None else start).clone().requires_grad_(True)
    optimiser = torch.optim.Adam([logits], lr=0.02)
    for _ in range(steps):
        logp = logits.log_softmax(-1)
        log_q = (q0 + beta * (logp - ref_logp) - 1) / beta
        losses = success_cross_entropy(log_q, (rewards - 1) / beta, SPOConfig().slope_bound)
        optimiser.zero_grad()
        (logp.detach().exp() * losses).sum().backward()
        optimiser.step()
    return logits.detach().softmax(-1)


@pytest.mark.parametrize("solved", [1, 2, 3])
def test_a_noisy_initial_value_puts_no_ceiling_on_success(solved):
    """p = .05 and `solved` of 16 reference responses: p̂ is above p, the optimum has mass .999.

    Before the loss was mended a success stopped at S = (1 − Q̂_0)/β: .80, .40 and .27.
    """
    rewards = torch.tensor([1.0] * solved + [0.0] * (16 - solved), dtype=torch.float64)
    mass = on_policy_optimum(0.05, soft_value(rewards, 0.1).item())[:4].sum()
    assert mass > 0.95


@pytest.mark.parametrize("start", ["reference", "failures", "one success"])
def test_an_exact_initial_value_has_one_optimum_wherever_training_starts(start):
    """The success has no slope above its target, so the rest must hold it: π_θ is normalised."""
    p, beta = 0.05, 0.1
    starts = {
        "reference": None,
        "failures": torch.tensor([-4.0] * 4 + [2.0, 1.0, 0.0, 0.0], dtype=torch.float64),
        "one success": torch.tensor([6.0] + [0.0] * 7, dtype=torch.float64),
    }
    q0 = 1 + beta * math.log((1 - p) * math.exp(-1 / beta) + p)
    found = on_policy_optimum(p, q0, start=starts[start], steps=12_000)
    failures = torch.full((4,), (1 - p) / 4, dtype=torch.float64)
    weights = torch.cat([torch.full_like(failures, p / 4 * math.exp(1 / beta)), failures])
    optimum = weights / weights.sum()
    assert 0.5 * (found - optimum).abs().sum() < 5e-3
