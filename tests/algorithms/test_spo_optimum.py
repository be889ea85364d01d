"""SPO's optimum from frozen and from fresh data, with an exact and with a noisy initial value."""

import math

import pytest
import torch

from algorithms.grpo import group_advantages
from algorithms.spo import soft_value, success_cross_entropy
from tests.algorithms.tabular import BETA, RESPONSES, ROWS, table_logp, total_variation


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


def soft_values(world):
    """β log E_ref e^{r/β} after 0 … 3 tokens of each response, (27, 4), by enumeration."""
    paid, values = world["rewards"] / BETA, []
    for t, rows in enumerate(ROWS.T):
        to_come = world["ref_logp"][:, t:].sum(-1) + paid
        same = rows.unsqueeze(-1) == rows
        values.append(BETA * to_come.masked_fill(~same, -math.inf).logsumexp(-1))
    return torch.stack([*values, world["rewards"]], -1)


# share of the way → greatest and root mean square error; values differ by up to .99
OFF = {1.0: (0.0, 0.0), 0.5: (0.379, 0.104), 0.0: (0.717, 0.202)}


@pytest.mark.parametrize("share", OFF)
def test_the_policys_values_are_soft_values_at_the_optimum_and_nowhere_before(share, world):
    """Q_t = Q̂_0 + Σ β log π/π_ref with the exact Q̂_0, for π ∝ π_ref e^{share · r/β}.

    At the reference Q_t is the prompt's value at every prefix; half way half of that error is left.
    """
    weights = (world["ref_logp"].sum(-1) + share * world["rewards"] / BETA).softmax(-1)
    prefixes = [(rows.unsqueeze(-1) == rows).double() @ weights for rows in ROWS.T]
    logp = torch.stack([*prefixes, weights], -1).log().diff(dim=-1)
    s = torch.nn.functional.pad(BETA * (logp - world["ref_logp"]).cumsum(-1), (1, 0))
    error = world["q0"] + s - soft_values(world)
    off = error.abs().max().item(), error.square().mean().sqrt().item()
    assert off == pytest.approx(OFF[share], abs=1e-10 if share == 1 else 1e-3)


BANDIT_BETA, SUCCESS_RATE = 0.1, 0.05


def on_policy_optimum(q0, start=None, *, steps):
    """Probabilities (n, 8) at which on-policy SPO ends, in exact expectation, for q0 (n,).

    One prompt, one token: four successes share SUCCESS_RATE under π_ref, four failures the rest.
    `start` (n, 8) are the first logits; None: π_ref's. The n runs share nothing but the loop.
    """
    p = SUCCESS_RATE
    ref_logp = torch.tensor([p / 4] * 4 + [(1 - p) / 4] * 4, dtype=torch.float64).log()
    rewards = torch.tensor([1.0] * 4 + [0.0] * 4, dtype=torch.float64)
    start = ref_logp.expand(len(q0), 8) if start is None else start
    logits = start.clone().requires_grad_(True)
    optimiser = torch.optim.Adam([logits], lr=0.05)
    for _ in range(steps):
        logp = logits.log_softmax(-1)
        log_q = (q0.unsqueeze(-1) + BANDIT_BETA * (logp - ref_logp) - 1) / BANDIT_BETA
        log_p = (rewards - 1) / BANDIT_BETA
        losses = success_cross_entropy(log_q, log_p, 1.0, 1.0)
        optimiser.zero_grad()
        (logp.detach().exp() * losses).sum().backward()
        optimiser.step()
    return logits.detach().softmax(-1)


def test_a_noisy_initial_value_puts_no_ceiling_on_success():
    """p = .05 and 1, 2 or 3 of 16 reference responses solve: p̂ > p, the optimum has mass .999.

    Before the loss was corrected a success stopped at S = (1 − Q̂_0)/β: .80, .40 and .27.
    """
    rewards = (torch.arange(16) < torch.tensor([[1], [2], [3]])).double()
    mass = on_policy_optimum(soft_value(rewards, BANDIT_BETA), steps=1500)[:, :4].sum(-1)
    assert (mass > 0.95).all()


def test_an_exact_initial_value_has_one_optimum_wherever_training_starts():
    """A success has no slope above its target, so the failures must hold it: π_θ is normalised."""
    p, beta = SUCCESS_RATE, BANDIT_BETA
    reference = [math.log(p / 4)] * 4 + [math.log((1 - p) / 4)] * 4
    failures = [-4.0] * 4 + [2.0, 1.0, 0.0, 0.0]
    one_success = [6.0] + [0.0] * 7
    starts = torch.tensor([reference, failures, one_success], dtype=torch.float64)
    q0 = torch.tensor(1 + beta * math.log((1 - p) * math.exp(-1 / beta) + p), dtype=torch.float64)
    final = on_policy_optimum(q0.expand(3), starts, steps=4000)
    weights = torch.tensor([p / 4 * math.exp(1 / beta)] * 4 + [(1 - p) / 4] * 4).double()
    optimum = weights / weights.sum()
    assert (0.5 * (final - optimum).abs().sum(-1) < 5e-3).all()
