"""Gradients of every objective: the loss's slope by finite differences, float32, the direction.

Names in DETACHED detach something that depends on the policy, so no finite difference is their
gradient: test_recipes.py and test_identities.py check them token by token.
"""

import pytest
import torch

import algorithms
from tests.algorithms.batches import GROUP, gradient, raw
from tests.algorithms.test_invariance import CASES

OPTIONS = {
    "maxk": {"k": 2},
    "pkpo": {"k": 2},
    "passk": {"k": 2},
    "clip_cov": {"share": 0.1, "cov_low": 0.01},
    "spo": {"q0": "monte_carlo"},  # the group's value is detached
}
DETACHED = {  # name: what
    "cispo": "the clipped ratio, a weight",
    "vespo": "the response's weight",
    "topr": "the tapered ratio of failures, a weight",
    "chord": "p(1 − p), a weight of demonstrations",
    "srft": "the entropy, in two weights",
    "dro": "the critic in the policy's loss, and the policy in the critic's",
}


@pytest.mark.parametrize("name", sorted(set(algorithms.names()) - set(DETACHED)))
def test_the_gradient_is_the_slope_of_the_loss(name):
    check_slope(algorithms.make(name, **OPTIONS.get(name, {})))


def check_slope(algorithm):
    """Raise AssertionError if the gradient along a direction is not the loss's slope there."""
    tensors, lengths, rewards = raw(seed=41)
    generator = torch.Generator().manual_seed(0)
    keep = torch.arange(12) != 6
    step = 1e-6
    directions = {
        key: torch.randn(tensors[key].shape, generator=generator).double()
        for key in ("logp", "new_values")
    }

    def at(sign):
        """(loss, gradients) after a step along `directions`; prepare sees the moved policy too."""
        moved = tensors | {key: tensors[key] + sign * step * way for key, way in directions.items()}
        moved["policy_logp"] = moved["logp"]
        return gradient(algorithm, moved, lengths, rewards, keep=keep, cut=5)

    _, *gradients = at(0)
    along = sum(
        float((grad * way).sum())
        for grad, way in zip(gradients, directions.values(), strict=True)
        if grad is not None
    )
    slope = float(at(1)[0] - at(-1)[0]) / (2 * step)
    assert slope == pytest.approx(along, rel=1e-5, abs=1e-8)
    assert along != 0, "the loss does not depend on the policy"


@pytest.mark.parametrize("name", algorithms.names())
def test_in_float32_it_is_the_same_gradient(name):
    """Models train in float32, where a term that cancels in float64 may swallow the others."""
    algorithm, (tensors, lengths, rewards) = (
        algorithms.make(name, **OPTIONS.get(name, {})),
        raw(seed=42),
    )
    rounded = {key: value.float() for key, value in tensors.items()}  # tie breakers see the same
    exact = {key: value.double() for key, value in rounded.items()}
    exact["policy_logp"], rounded["policy_logp"] = exact["logp"], rounded["logp"]
    pairs = zip(
        gradient(algorithm, rounded, lengths, rewards.float()),
        gradient(algorithm, exact, lengths, rewards),
        strict=True,
    )
    for one, other in pairs:
        if other is not None:
            close = 1e-5 * other.abs().max().item()
            torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=close)


# With its default k, passk needs larger groups: in groups of four every advantage is 0.
@pytest.mark.parametrize("case", [case for case in CASES if case != "passk"])
def test_accepted_responses_are_raised_above_rejected_ones(case):
    """To first order, at π_θ = π_ref = μ: Σ_i (r_i − its group's mean) Σ_t −∂L/∂log π_t > 0."""
    name, options = CASES[case]
    tensors, lengths, rewards = raw()
    names = (*tensors, "start_logp", "proximal_logp", "precedent_logp")
    equal = dict.fromkeys(names, tensors["logp"])
    equal["values"] = equal["new_values"] = torch.full_like(tensors["logp"], 0.3)
    slopes = gradient(algorithms.make(name, **options), equal, lengths, rewards)[1].sum(-1)
    centred = rewards.view(-1, GROUP) - rewards.view(-1, GROUP).mean(-1, keepdim=True)
    assert -float((slopes * centred.flatten()).sum()) > 1e-4
