"""Corrections of the ratio: their weights, identities, and their use in every objective."""

import math

import pytest
import torch

import algorithms
from algorithms.base import Batch, PolicyOutput
from algorithms.grpo import GRPO
from algorithms.ppo import PPO
from algorithms.tensors import CORRECTION_BOUNDS, correction_weights
from tests.compose import options_of

F64 = torch.float64
MASK = torch.tensor([[True, True, True], [True, True, False]])
PROXIMAL = torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.1, 0.7]], dtype=F64).log()
ROLLOUT = torch.tensor([[0.3, 0.3, 0.4], [0.1, 0.5, 0.7]], dtype=F64).log()
W = [[5 / 3, 1.0, 0.5], [4.0, 0.2, 1.0]]
RLEF = [[1.0, 1.0, 0.5], [1.0, 0.2, 1.0]]  # min(w, 1)
MEANS = [(5 / 6) ** (1 / 3), 0.8**0.5]  # geometric, of each row


@pytest.mark.parametrize(
    ("kind", "bounds", "expected"),
    [
        ("decoupled", (), W),
        ("truncated", (0.0, 1.5), [[1.5, 1.0, 0.5], [1.5, 0.2, 1.0]]),
        ("truncated", (0.3, 3.0), [[5 / 3, 1.0, 0.5], [3.0, 0.3, 1.0]]),
        ("truncated_current", CORRECTION_BOUNDS["truncated_current"], RLEF),
        ("masked", (0.4, 2.0), [[5 / 3, 1.0, 0.5], [0.0, 0.0, 1.0]]),
        ("sequence_mask", (0.9, 1.1), [W[0], [0.0, 0.0, 1.0]]),
        ("sequence_mask", (0.8, 0.9), [[0.0, 0.0, 0.0], W[1]]),
    ],
)
def test_weights(kind, bounds, expected):
    assert pytest.approx([0.941, 0.894], abs=1e-3) == MEANS
    weights, cut = correction_weights(PROXIMAL, ROLLOUT, MASK, kind, *bounds)
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=F64))
    free = torch.tensor(W, dtype=F64)
    assert torch.equal(cut, ~torch.isclose(weights, free))


@pytest.mark.parametrize("kind", ["decoupled", *CORRECTION_BOUNDS])
def test_masked_out_positions_are_not_read(kind):
    garbage = PROXIMAL.masked_fill(~MASK, float("nan"))
    weights, cut = correction_weights(garbage, ROLLOUT, MASK, kind, 0.5, 2.0)
    assert weights[~MASK].tolist() == [1.0]
    assert not cut[~MASK].any()


def loss_and_gradient(algorithm, logp, old, correction):
    """(loss, gradient of the log-probs) for fixed advantages, one for each row."""
    logp = logp.clone().requires_grad_(True)
    advantages = torch.tensor([1.0, -2.0], dtype=F64).unsqueeze(-1).expand(MASK.shape)
    zeros = torch.zeros_like(logp)
    batch = Batch(
        mask=MASK,
        rewards=torch.zeros(2, dtype=F64),
        keep=torch.ones(2, dtype=torch.bool),
        online=torch.ones(2, dtype=torch.bool),
        group_size=2,
        behaviour_logp=old,
        correction=correction,
        values=zeros,
        advantages=advantages,
        returns=zeros,
    )
    loss, _ = algorithm.loss(PolicyOutput(logp, zeros.detach(), zeros.detach()), batch)
    loss.backward()
    return loss.detach(), logp.grad


CURRENT = PROXIMAL + torch.tensor([[0.1, -0.3, 0.2], [0.5, 0.0, 0.3]], dtype=F64)


@pytest.mark.parametrize(
    "algorithm",
    [PPO(options_of("ppo", kl_coef=0.0), 1.0), GRPO(options_of("grpo", kl_coef=0.0), 1.0)],
)
def test_decoupled_with_the_rollout_policy_as_proximal_policy_is_ppo(algorithm):
    weights, _ = correction_weights(ROLLOUT, ROLLOUT, MASK, "decoupled")
    plain = loss_and_gradient(algorithm, CURRENT, ROLLOUT, None)
    corrected = loss_and_gradient(algorithm, CURRENT, ROLLOUT, weights)
    assert all(torch.equal(one, other) for one, other in zip(plain, corrected, strict=True))


def test_truncated_without_a_bound_is_plain_importance_sampling():
    """At the first step: exactly −mean(π/μ A) and its gradient, where PPO would clip."""
    weights, cut = correction_weights(PROXIMAL, ROLLOUT, MASK, "truncated", 0.0, math.inf)
    assert torch.equal(weights, correction_weights(PROXIMAL, ROLLOUT, MASK, "decoupled")[0])
    assert not cut.any()
    loss, grad = loss_and_gradient(
        PPO(options_of("ppo", kl_coef=0.0), 1.0), PROXIMAL, PROXIMAL, weights
    )
    logp = PROXIMAL.clone().requires_grad_(True)
    advantages = torch.tensor([[1.0], [-2.0]], dtype=F64)
    plain = -((logp - ROLLOUT).exp() * advantages)[MASK].mean()
    plain.backward()
    torch.testing.assert_close(loss, plain.detach())
    torch.testing.assert_close(grad, logp.grad)


def test_truncated_weights_turn_a_samplers_mean_into_the_policys():
    value = torch.tensor([1.0, -2.0, 5.0], dtype=F64)
    rows = (PROXIMAL[:1], ROLLOUT[:1], MASK[:1])
    weights, _ = correction_weights(*rows, "truncated", 0.0, 2.0)
    mean = (ROLLOUT[0].exp() * weights[0] * value).sum()
    torch.testing.assert_close(mean, (PROXIMAL[0].exp() * value).sum())


CORRECTABLE = [
    name
    for name in algorithms.names()
    if (needs := algorithms.make(name).needs).behaviour and needs.behaviour == "ratio"
]


@pytest.mark.parametrize("name", CORRECTABLE)
def test_no_objective_with_a_ratio_leaves_the_weights_out(name):
    torch.manual_seed(0)
    algorithm, shape = algorithms.make(name), (8, 5)
    mask, online = torch.ones(shape, dtype=torch.bool), torch.ones(8, dtype=torch.bool)
    old = -torch.rand(shape, dtype=F64)
    fields = {"mask": mask, "keep": online, "online": online, "fresh": online, "group_size": 8}
    fields["rewards"] = torch.tensor([1.0] + [0.0] * 7, dtype=F64)
    for field in ("behaviour_logp", "ref_logp", "policy_logp", "values"):
        fields[field] = old
    gradients = []
    for factor in (1.0, 3.0):
        logp = (old + 0.01).requires_grad_(True)
        correction = torch.full(shape, factor, dtype=F64)
        batch = algorithm.prepare(Batch(**fields, correction=correction)).only_kept()
        rows = PolicyOutput(logp[: len(batch.mask)], old[: len(batch.mask)], old[: len(batch.mask)])
        algorithm.loss(rows, batch)[0].backward()
        gradients.append(logp.grad)
    assert not torch.allclose(*gradients)
