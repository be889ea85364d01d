"""What a scale of rewards and the exponent mean to SPO: identities in float64."""

from typing import get_args

import pytest
import torch

import algorithms
from algorithms.base import Batch, PolicyOutput
from algorithms.spo import LossKind, soft_value

BETA, SIZE = 0.3, 4
VALUES = ("group", "group_soft", "monte_carlo")


def pull(low, high, beta=BETA, **options):
    """(loss, gradient of S) of SPO on 12 responses, of which some have the reward `high`."""
    generator = torch.Generator().manual_seed(0)
    s = torch.randn(12, 1, generator=generator, dtype=torch.float64)
    rewards = torch.tensor([1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1], dtype=torch.float64)
    rewards = low + (high - low) * rewards
    logp, kept = s.clone().requires_grad_(True), torch.ones(12, dtype=torch.bool)
    reference = low + (high - low) * torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    batch = Batch(
        mask=torch.ones(12, 1, dtype=torch.bool),
        rewards=rewards,
        keep=kept,
        online=kept,
        group_size=SIZE,
        ref_logp=torch.zeros(12, 1, dtype=torch.float64),
        policy_logp=s,
        rollout_logp=s,
        q0=soft_value(reference, beta).expand(12),
    )
    spo = algorithms.make("spo", reward_high=high, beta=beta, **options)
    loss = spo.loss(PolicyOutput(logp=logp, entropy=logp), spo.prepare(batch))[0]
    loss.backward()
    return loss.detach(), logp.grad


def same(ones, others, factor=1.0):
    for one, other in zip(ones, others, strict=True):
        torch.testing.assert_close(one, factor * other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("q0", VALUES)
@pytest.mark.parametrize(
    "form", [*({"loss": loss} for loss in get_args(LossKind)), {"exponent": "q"}], ids=str
)
def test_a_shift_of_all_rewards_changes_nothing(form, q0):
    options = form | {"q0": q0}
    if q0 == "group" and options.get("loss", "cross_entropy") == "cross_entropy":
        with pytest.raises(ValueError, match="q0=group_soft or q0=monte_carlo, or loss=squared"):
            algorithms.make("spo", **options)
        return
    same(pull(-1.0, 0.0, **options), pull(0.0, 1.0, **options))
    same(pull(6.0, 7.0, **options), pull(0.0, 1.0, **options))


@pytest.mark.parametrize("q0", VALUES)
def test_a_scale_of_all_rewards_is_betas(q0):
    """Rewards −1 and 1 are 0 and 1 at half of β; squares of rewards count four times."""
    if q0 != "group":  # the cross-entropy refuses it
        one, other = ({"beta": b, "loss": "cross_entropy", "q0": q0} for b in (BETA, BETA / 2))
        same(pull(-1.0, 1.0, **one), pull(0.0, 1.0, **other))
    one, other = ({"beta": b, "loss": "squared", "q0": q0} for b in (BETA, BETA / 2))
    same(pull(-1.0, 1.0, **one), pull(0.0, 1.0, **other), 4.0)
    widths = {"loss": "advantage", "q0": q0}
    one = pull(-1.0, 1.0, huber_width=0.2, **widths)
    same(one, pull(0.0, 1.0, beta=BETA / 2, huber_width=0.1, **widths), 4.0)
