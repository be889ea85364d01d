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
    algorithm = algorithms.make(name, **OPTIONS.get(name, {}))
    tensors, lengths, rewards = raw(seed=42)
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
WITH_A_STEP = [case for case in CASES if case != "passk"]
# Exceptions, each with its reason.
RAISED = {}  # a rejected response is raised
SKIPPED = {
    "clip_cov share=0.2 cov_low=0.01": "drops tokens of a band of covariances",
    "segment_chain": "learns from unlikely tokens alone",
    "segment_tree": "learns from unlikely tokens alone",
}
OWN_BEHAVIOUR = {  # the pull does not fall as the behaviour policy's probability rises
    "apa": "the square of the log-ratio, whose slope is no ratio",
    "apa critic=none": "likewise",
    "segment_chain": "which tokens are unlikely changes too",
    "segment_tree": "which tokens are unlikely changes too",
    "kl_cov share=0.2": "a KL to the behaviour policy, which pulls where the two differ",
}
# Other groups' rewards count.
WHOLE_BATCH = {"clip_cov share=0.2 cov_low=0.01": "covariances over the batch"}


def pulls(case, lengths, rewards, **moved):
    """−∂L/∂log π_t (rows, time) at π_θ = π_ref = μ, but for what is `moved`."""
    name, options = CASES[case]
    tensors = raw()[0]
    names = (*tensors, "start_logp", "proximal_logp", "precedent_logp")
    equal = dict.fromkeys(names, tensors["logp"])
    equal["values"] = equal["new_values"] = torch.full_like(tensors["logp"], 0.3)
    equal |= {key: tensors["logp"] + by for key, by in moved.items()}
    return -gradient(algorithms.make(name, **options), equal, lengths, rewards)[1]


@pytest.mark.parametrize("case", WITH_A_STEP)
def test_accepted_responses_are_raised_above_rejected_ones_which_are_not_raised(case):
    """To first order, Σ_i (r_i − its group's mean) Σ_t pull > 0, and no rejected one has any > 0.

    A response that is pulled at all is pulled at each of its tokens, the last one included.
    """
    _, lengths, rewards = raw()
    pulled, live = pulls(case, lengths, rewards), torch.arange(6) < lengths.unsqueeze(-1)
    centred = rewards.view(-1, GROUP) - rewards.view(-1, GROUP).mean(-1, keepdim=True)
    assert float((pulled.sum(-1) * centred.flatten()).sum()) > 1e-4
    assert case in RAISED or float(pulled[rewards == 0].max()) < 1e-9
    rows = (pulled != 0).any(-1)
    assert case in SKIPPED or torch.equal((pulled != 0)[rows], live[rows])


RATIO = [c for c in WITH_A_STEP if algorithms.make(CASES[c][0]).needs.behaviour == "ratio"]


@pytest.mark.parametrize("case", sorted(set(RATIO) - set(OWN_BEHAVIOUR)))
def test_what_the_behaviour_policy_made_more_probable_is_pulled_less(case):
    """The ratio is to the behaviour policy: no other one that agrees with π has that effect."""
    before, after = (
        float(pulls(case, *raw()[1:], behaviour_logp=up).abs().sum()) for up in (0.0, 0.01)
    )
    assert after < 0.995 * before


GROUPS = [c for c in WITH_A_STEP if algorithms.make(CASES[c][0]).needs.groups > 1]


@pytest.mark.parametrize("case", sorted(set(GROUPS) - set(WHOLE_BATCH)))
def test_other_groups_rewards_do_not_count(case):
    rewards = torch.tensor([0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 1, 0]).double()
    others = torch.cat([rewards[:8], torch.tensor([1.0, 1.0, 0.0, 1.0]).double()])
    one, other = (pulls(case, raw()[1], r)[:8] for r in (rewards, others))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
