"""Every objective that bounds a ratio logs the share of tokens whose gradient the bound changes."""

from dataclasses import fields

import pytest
import torch

import algorithms
from tests.algorithms.batches import evaluated, fresh, metrics, raw

BOUNDS = {"clip_low", "clip_high", "cap", "threshold", "second_moment", "ratio_cap"}
NAMES = [
    name
    for name in algorithms.names()
    # TOPR's bound of a ratio is no option: min(π/μ, 1)
    if name == "topr" or BOUNDS & {option.name for option in fields(algorithms.make(name).config)}
]
# of k = 4 in groups of 4 nothing is left to learn
OPTIONS = {name: {"k": 2} for name in ("pkpo", "passk", "maxk")}
# Objectives whose bound removes the gradient, without their terms that no bound reaches
REMOVING = {
    "grpo": {"kl_coef": 0.0},
    "gspo": {},
    "rec": {},
    "dppo": {"quadratic_coef": 0.0},
    "repo": {},
    "remix": {"kl_coef": 0.0},
    "passk": {"k": 2},
    "bapo": {},
    "m2po": {},
    "clip_cov": {"share": 0.2, "cov_low": 0.01},
    "reinforce_pp": {"kl_coef": 0.0},
    "chord": {},
}
OWN = torch.ones(12, dtype=torch.bool)


def far(seed):
    """Of each group's successes and failures, half have become e² times as probable, half as less.

    The greatest log-prob is −.1, so that probabilities differ by much as well.
    """
    tensors, lengths, _ = raw(seed)
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0]).repeat(3).double()
    sign = torch.tensor([1.0, -1.0, 1.0, -1.0]).repeat(3).unsqueeze(-1)
    logp = -0.1 - torch.rand(tensors["logp"].shape, dtype=torch.float64) / 10 + sign - 1
    stale = dict.fromkeys(("behaviour_logp", "start_logp", "proximal_logp"), logp - 2 * sign)
    return tensors | {"logp": logp, "policy_logp": logp} | stale, lengths, rewards


@pytest.mark.parametrize("name", NAMES)
def test_far_off_policy_tokens_are_clipped_and_on_policy_none(name):
    tensors, lengths, rewards = far(0)
    algorithm = algorithms.make(name, **OPTIONS.get(name, {}))
    assert 0 < metrics(algorithm, tensors, lengths, rewards, online=OWN)["clip_share"] <= 1
    on_policy = fresh(tensors) | {"proximal_logp": tensors["logp"]}
    assert metrics(algorithm, on_policy, lengths, rewards, online=OWN)["clip_share"] == 0
    # an engine's log-probs are the learner's but for rounding
    nearly = on_policy | {"behaviour_logp": tensors["logp"] - 1e-6}
    assert metrics(algorithm, nearly, lengths, rewards, online=OWN)["clip_share"] == 0


@pytest.mark.parametrize("name", REMOVING)
def test_the_share_is_that_of_the_tokens_without_a_gradient(name):
    tensors, lengths, rewards = far(2)
    _, slopes, _, found = evaluated(
        algorithms.make(name, **REMOVING[name]), tensors, lengths, rewards, online=OWN
    )
    tokens = torch.arange(slopes.shape[1]) < lengths.unsqueeze(-1)
    assert found["clip_share"] == pytest.approx(float((slopes[tokens] == 0).double().mean()))
