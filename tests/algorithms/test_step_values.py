"""VinePPO and Segment PO's chain: by hand, with one step, and with exact values."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import algorithms
from algorithms.base import Batch, PolicyOutput
from algorithms.step_values import step_advantages
from algorithms.tensors import masked_mean, masked_whiten
from tests.algorithms.tabular import MASK, RESPONSES, ROWS, table_logp

NAN = float("nan")
# four responses of at most five tokens; the last one is dropped
REWARDS, LENGTHS = [1.0, 0.0, 1.0, 1.0], [5, 3, 4, 2]
VALUES = [
    [0.25, NAN, 0.5, 0.75, NAN],
    [0.5, 0.25, NAN, NAN, NAN],
    [NAN, NAN, 0.5, NAN, NAN],
    [0.5, NAN, NAN, NAN, NAN],
]
KEEP = [True, True, True, False]


def batch_of(seed=0):
    drawn = np.random.default_rng(seed).uniform(-0.4, 0.0, (3, 4, 5))
    behaviour, ref, logp = (torch.tensor(one) for one in drawn)
    mask = torch.arange(5) < torch.tensor(LENGTHS).unsqueeze(-1)
    batch = Batch(
        mask=mask,
        rewards=torch.tensor(REWARDS, dtype=torch.float64),
        keep=torch.tensor(KEEP),
        online=torch.ones(4, dtype=torch.bool),
        group_size=4,
        behaviour_logp=behaviour,
        rollout_logp=behaviour,
        ref_logp=ref,
        step_values=torch.tensor(VALUES, dtype=torch.float64),
    )
    return batch, logp


def loss_by_hand(batch, logp, only_unlikely):
    """Token by token, in numpy."""
    behaviour, ref, pi = (x.numpy() for x in (batch.behaviour_logp, batch.ref_logp, logp))
    terms = []
    for row in range(4):
        cuts = [t for t in range(5) if not np.isnan(VALUES[row][t])]
        for t in range(LENGTHS[row]):
            before, after = [c for c in cuts if c <= t], [c for c in cuts if c > t]
            gain = 0.0
            if before:
                following = VALUES[row][after[0]] if after else REWARDS[row]
                gain = following - VALUES[row][before[-1]]
            learned = KEEP[row] and (not only_unlikely or np.exp(behaviour[row, t]) < 0.9)
            if learned:
                terms.append((row, t, gain))
    gains = np.array([gain for _, _, gain in terms])
    scaled = (gains - gains.mean()) / np.sqrt(gains.var() + 1e-8)
    total = 0.0
    for (row, t, _), gain in zip(terms, scaled, strict=True):
        ratio = np.exp(pi[row, t] - behaviour[row, t])
        d = ref[row, t] - pi[row, t]
        total -= min(ratio * gain, np.clip(ratio, 0.8, 1.2) * gain)
        total += 1e-4 * (np.exp(d) - d - 1)
    return total / len(terms)


@pytest.mark.parametrize("name", ["vineppo", "segment_chain"])
def test_the_loss_is_that_of_a_sum_by_hand(name):
    algorithm, (batch, logp) = algorithms.make(name), batch_of()
    prepared = algorithm.prepare(batch).only_kept()
    output = PolicyOutput(logp[:3], logp[:3])
    loss, _ = algorithm.loss(output, prepared)
    assert float(loss) == pytest.approx(loss_by_hand(batch, logp, name != "vineppo"), rel=1e-12)
    assert float(loss) != pytest.approx(loss_by_hand(batch, logp, name == "vineppo"), rel=1e-3)
    values, outcomes = algorithm.values_and_outcomes(batch)
    assert (values.tolist(), outcomes.tolist()) == (
        [0.25, 0.5, 0.75, 0.5, 0.25, 0.5, 0.5],
        [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0],
    )


@pytest.mark.parametrize("name", ["vineppo", "segment_chain"])
def test_one_step_is_reinforce_with_the_prompts_value_as_baseline(name):
    algorithm, (batch, _) = algorithms.make(name, only_unlikely=False, kl_coef=0.0), batch_of()
    baseline = torch.tensor([0.25, 0.5, 0.125, 0.75], dtype=torch.float64)
    first = torch.arange(5).expand(4, 5) == 0
    values = torch.where(first, baseline.unsqueeze(-1), NAN)
    batch = replace(batch, step_values=values, keep=batch.keep | True)
    logp = batch.behaviour_logp.clone().requires_grad_(True)
    algorithm.loss(PolicyOutput(logp, logp), algorithm.prepare(batch))[0].backward()
    plain = batch.behaviour_logp.clone().requires_grad_(True)
    gains = (batch.rewards - baseline).unsqueeze(-1).expand(4, 5)
    (-masked_mean(masked_whiten(gains, batch.mask) * plain, batch.mask)).backward()
    torch.testing.assert_close(logp.grad, plain.grad, rtol=1e-12, atol=0)


@pytest.mark.parametrize("starts", [[0, 1, 2], [0, 2]])
def test_with_exact_values_it_is_the_exact_policy_gradient(starts, world):
    """K → ∞: E[Σ A ∇ log π] = ∇ E r; with a step a token, A = Q(s, a) − V(s) without noise."""
    table = world["reference"].clone().requires_grad_(True)
    logp, rewards = table_logp(table), world["rewards"]
    weights = logp.sum(-1).exp()
    exact = []
    for t in range(3):  # V of each response's state, by enumeration of what goes on from it
        same = (ROWS[:, t].unsqueeze(-1) == ROWS[:, t]).double()
        exact.append(((same * weights) @ rewards) / (same @ weights))
    values = torch.stack(exact, -1).detach()
    cut = torch.zeros(3, dtype=torch.bool).index_fill_(0, torch.tensor(starts), True)
    ones = torch.ones(27, dtype=torch.bool)
    batch = Batch(MASK, rewards, ones, ones, 27, step_values=values.masked_fill(~cut, NAN))
    advantages = step_advantages(batch)
    score = (weights.detach() * (advantages * logp).sum(-1)).sum()
    (true,) = torch.autograd.grad((weights * rewards).sum(), table, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(score, table)[0], true, rtol=0, atol=1e-14)
    if len(starts) == 3:
        following = torch.cat([values[:, 1:], rewards.unsqueeze(-1)], -1)
        torch.testing.assert_close(advantages, following - values)
        (of_state,) = {tuple(a) for a in advantages[RESPONSES[:, 0] == 1][:, :1].tolist()}
        assert of_state[0] != 0  # one number for all nine responses with this first token
