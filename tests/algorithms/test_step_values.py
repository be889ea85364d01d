"""VinePPO and Segment PO's chain and tree: by hand, with one step, and with exact values."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import algorithms
from algorithms.base import Batch, PolicyOutput
from algorithms.tensors import masked_mean, masked_whiten
from algorithms.value_variants import step_advantages
from tests.algorithms.tabular import MASK, ROWS, table_logp

NAN, NAMES = float("nan"), ["vineppo", "segment_chain", "segment_tree"]
# four responses of at most five tokens, the last one dropped; values of cuts before their tokens
REWARDS, LENGTHS, KEPT = [1.0, 0.0, 1.0, 1.0], [5, 3, 4, 2], [True, True, True, False]
VALUES = [{0: 0.25, 2: 0.5, 3: 0.5}, {0: 0.5, 1: 0.25}, {2: 0.5}, {0: 0.5}]


def batch_of(values):
    """A batch whose behaviour policy, reference and policy are at hand in numpy too."""
    drawn = np.random.default_rng(0).uniform(-0.4, 0.0, (3, 4, 5))
    behaviour, ref, logp = map(torch.tensor, drawn)
    keep, rewards = torch.tensor(KEPT), torch.tensor(REWARDS, dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor(LENGTHS).unsqueeze(-1)
    logps = {"behaviour_logp": behaviour, "rollout_logp": behaviour, "ref_logp": ref}
    table = torch.tensor([[of.get(t, NAN) for t in range(5)] for of in values]).double()
    return Batch(mask, rewards, keep, keep | True, 4, **logps, step_values=table), logp, drawn


def loss_by_hand(drawn, only_unlikely, only_moved=False):
    """Token by token, in numpy."""
    behaviour, ref, logp = drawn
    gains, tokens = [], []
    for row, of in enumerate(VALUES[:3]):
        for t in range(LENGTHS[row]):
            if only_unlikely and np.exp(behaviour[row, t]) >= 0.9:
                continue
            here = [of[cut] for cut in of if cut <= t]
            following = [of[cut] for cut in of if cut > t] + [REWARDS[row]]
            gain = following[0] - here[-1] if here else 0.0
            if gain or not only_moved:
                gains.append(gain)
                tokens.append((row, t))
    advantages, total = (gains - np.mean(gains)) / np.sqrt(np.var(gains) + 1e-8), 0.0
    distance = 0.0  # the sum over tokens, the mean over the three responses
    for at, advantage in zip(tokens, advantages, strict=True):
        ratio, d = np.exp(logp[at] - behaviour[at]), ref[at] - logp[at]
        total -= min(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
        distance += (np.exp(d) - d - 1) / 3
    return total / len(tokens) + 1e-4 * distance


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_that_of_a_sum_by_hand(name):
    algorithm, (batch, logp, drawn) = algorithms.make(name), batch_of(VALUES)
    kept = algorithm.prepare(batch).only_kept()
    loss = float(algorithm.loss(PolicyOutput(logp[:3], logp[:3]), kept)[0])
    kinds = dict(zip(NAMES, [(False,), (True,), (True, True)], strict=True))
    losses = {each: loss_by_hand(drawn, *kind) for each, kind in kinds.items()}
    assert loss == pytest.approx(losses[name], rel=1e-12)
    assert len({round(each, 4) for each in losses.values()}) == 3
    if name == "segment_tree":  # whose values have the response's own reward in them
        assert algorithm.values_and_outcomes(batch) is None
        return
    values, outcomes = algorithm.values_and_outcomes(batch)
    assert values.tolist() == [0.25, 0.5, 0.5, 0.5, 0.25, 0.5, 0.5]
    assert outcomes.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("name", NAMES)
def test_one_step_is_reinforce_with_the_prompts_value_as_baseline(name):
    algorithm = algorithms.make(name, only_unlikely=False, kl_coef=0.0)
    baseline = torch.tensor([0.25, 0.5, 0.125, 0.75], dtype=torch.float64)
    batch, *_ = batch_of([{0: value} for value in baseline.tolist()])
    batch = replace(batch, keep=batch.online)
    logp, plain = (batch.behaviour_logp.clone().requires_grad_(True) for _ in range(2))
    algorithm.loss(PolicyOutput(logp, logp), algorithm.prepare(batch))[0].backward()
    gains = (batch.rewards - baseline).unsqueeze(-1).expand(4, 5)
    (-masked_mean(masked_whiten(gains, batch.mask) * plain, batch.mask)).backward()
    torch.testing.assert_close(logp.grad, plain.grad, rtol=1e-12, atol=0)


@pytest.mark.parametrize("starts", [[0, 1, 2], [0, 2]])
def test_with_exact_values_it_is_the_exact_policy_gradient(starts, world):
    """K → ∞: E[Σ A ∇ log π] = ∇ E r; with a step a token, A = Q(s, a) − V(s) without noise."""
    table, rewards = world["reference"].clone().requires_grad_(True), world["rewards"]
    logp, ones = table_logp(table), torch.ones(27, dtype=torch.bool)
    weights = logp.sum(-1).exp()
    same = [(rows.unsqueeze(-1) == rows).double() * weights.detach() for rows in ROWS.T]
    values = torch.stack([(s @ rewards) / s.sum(-1) for s in same], -1)  # E r from each state
    cut = torch.isin(torch.arange(3), torch.tensor(starts))
    batch = Batch(MASK, rewards, ones, ones, 27, step_values=values.masked_fill(~cut, NAN))
    advantages = step_advantages(batch)
    score = (weights.detach() * (advantages * logp).sum(-1)).sum()
    of_score, true = (
        torch.autograd.grad(x, table, retain_graph=True)[0] for x in (score, weights @ rewards)
    )
    torch.testing.assert_close(of_score, true, rtol=0, atol=1e-14)
    if len(starts) == 3:
        following = torch.cat([values[:, 1:], rewards.unsqueeze(-1)], -1)
        torch.testing.assert_close(advantages, following - values)
