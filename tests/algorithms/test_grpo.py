"""GRPO's advantages, variants and loss, by hand and against a well-known library."""

import pytest
import torch

import algorithms
from algorithms.base import Batch, PolicyOutput
from algorithms.grpo import GRPO, group_advantages
from tests.compose import options_of


def test_advantages_are_standardised_within_each_group():
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 5.0, 7.0, 9.0, 11.0], dtype=torch.float64)
    advantages = group_advantages(rewards, 4).view(2, 4)
    for group, got in zip(rewards.view(2, 4), advantages, strict=True):
        expected = (group - group.mean()) / (group.std(unbiased=True) + 1e-6)
        torch.testing.assert_close(got, expected)


def test_equal_rewards_have_no_advantage_even_where_floats_do_not_cancel():
    rewards = torch.full((3,), 0.1)
    assert rewards.std() != 0 or rewards.mean() == rewards[0]
    assert group_advantages(rewards.repeat(2), 3).tolist() == [0.0] * 6


def test_a_group_of_one_and_a_broken_group_are_errors():
    with pytest.raises(ValueError, match="group of 1"):
        group_advantages(torch.ones(4), 1)
    with pytest.raises(ValueError, match="whole groups of 3"):
        group_advantages(torch.ones(4), 3)


def make_batch(dtype=torch.float64, groups=2, size=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    count = groups * size
    mask = torch.arange(5) < torch.randint(1, 6, (count, 1), generator=generator)
    logp, old, ref = -torch.rand(3, count, 5, generator=generator, dtype=dtype)
    rewards = (torch.rand(count, generator=generator) < 0.5).to(dtype)
    batch = Batch(
        mask=mask,
        rewards=rewards,
        keep=torch.ones(count, dtype=torch.bool),
        online=torch.ones(count, dtype=torch.bool),
        group_size=size,
        behaviour_logp=old,
        ref_logp=ref,
    )
    return batch, logp


def loss_of(batch, logp, **options):
    grpo = GRPO(options_of("grpo", **options), reward_high=1.0)
    return grpo.loss(PolicyOutput(logp=logp, entropy=logp), grpo.prepare(batch))[0]


def loss_by_hand(batch, logp, kl_coef):
    """2402.03300, eq. 3, one response after the other."""
    total = 0.0
    advantages = group_advantages(batch.rewards, batch.group_size)
    for i, live in enumerate(batch.mask):
        ratio = (logp[i] - batch.behaviour_logp[i])[live].exp()
        bounded = ratio.clamp(0.8, 1.2)
        surrogate = torch.minimum(ratio * advantages[i], bounded * advantages[i])
        d = (logp[i] - batch.ref_logp[i])[live]
        total += (surrogate - kl_coef * ((-d).exp() - 1 + d)).mean()
    return -total / len(batch.mask)


def test_the_loss_is_the_papers():
    batch, logp = make_batch()
    for kl_coef in (0.0, 0.04):
        torch.testing.assert_close(
            loss_of(batch, logp, kl_coef=kl_coef), loss_by_hand(batch, logp, kl_coef)
        )


def test_the_three_aggregations():
    batch, logp = make_batch(seed=3)
    options = {"kl_coef": 0.0, "clip_low": 0.99, "clip_high": 1e9}
    ratio = (logp - batch.behaviour_logp).exp()
    terms = -(ratio * group_advantages(batch.rewards, 4).unsqueeze(-1)) * batch.mask
    lengths = batch.mask.sum(-1)
    expected = {
        "sequence_mean": (terms.sum(-1) / lengths).mean(),
        "token_mean": terms.sum() / lengths.sum(),
        "constant": terms.sum() / 64 / 8,
    }
    for how, value in expected.items():
        torch.testing.assert_close(loss_of(batch, logp, aggregate=how, **options), value)


def test_dapo_by_hand():
    """2503.14476, eq. 8: over all tokens of the groups that have both verdicts."""
    batch, logp = make_batch(seed=5, groups=3)
    batch.rewards[:4] = 1.0  # flat: dropped
    batch.rewards[4:] = torch.tensor([1.0, 0, 0, 1, 0, 1, 1, 1], dtype=torch.float64)
    dapo = algorithms.make("dapo")
    kept = dapo.prepare(batch).only_kept()
    loss = dapo.loss(PolicyOutput(logp=logp[4:], entropy=logp[4:]), kept)[0]
    total, tokens = 0.0, 0
    for i in range(4, 12):
        group = batch.rewards[i // 4 * 4 : i // 4 * 4 + 4]
        advantage = (batch.rewards[i] - group.mean()) / (group.std() + 1e-6)
        ratio = (logp[i] - batch.behaviour_logp[i])[batch.mask[i]].exp()
        total += torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage).sum()
        tokens += len(ratio)
    torch.testing.assert_close(loss, -total / tokens)
