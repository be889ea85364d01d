"""PPO's parts against hand-written sums."""

import pytest
import torch

from algorithms.base import Batch
from algorithms.ppo import PPO, clipped_surrogate, gae, turn_gae, value_loss
from tests.compose import options_of


def random_batch(seed=0, holes=False):
    generator = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, 6, 7, generator=generator, dtype=torch.float64)
    if holes:
        mask = torch.rand(6, 7, generator=generator) < 0.6
        mask[:, 3] = True
    else:
        mask = torch.arange(7) < torch.randint(1, 8, (6, 1), generator=generator)
    return rewards, values, mask


def gae_by_hand(rewards, values, mask, gamma, lam):
    """O(T²): A_t = Σ_k (γλ)^k δ_{t+k} over the row's own tokens."""
    advantages = torch.zeros_like(values)
    for row in range(len(values)):
        at = mask[row].nonzero().flatten().tolist()
        for i, t in enumerate(at):
            for k, s in enumerate(at[i:]):
                following = values[row, at[i + k + 1]] if i + k + 1 < len(at) else 0.0
                delta = rewards[row, s] + gamma * following - values[row, s]
                advantages[row, t] += (gamma * lam) ** k * delta
    return advantages


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (1.0, 0.0), (0.97, 0.9)])
@pytest.mark.parametrize("holes", [False, True])
def test_gae_equals_the_quadratic_sum(gamma, lam, holes):
    rewards, values, mask = random_batch(holes=holes)
    advantages, returns = gae(rewards, values, mask, gamma=gamma, lam=lam)
    expected = gae_by_hand(rewards, values, mask, gamma, lam)
    torch.testing.assert_close(advantages, expected)
    torch.testing.assert_close(returns, expected + values.masked_fill(~mask, 0))


def test_the_clip_cuts_only_what_goes_too_far_in_the_good_direction():
    old = torch.zeros(1, 4)
    logp = torch.tensor([[0.5, 0.5, -0.5, -0.5]], requires_grad=True)
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    loss = clipped_surrogate(logp, old, advantages, torch.ones(1, 4, dtype=torch.bool))
    loss.backward()
    assert (logp.grad != 0).tolist() == [[False, True, True, False]]
    ratio = logp.detach().exp()
    expected = -(1.2 - ratio[0, 1] + ratio[0, 2] - 0.8) / 4
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)


def test_value_loss_takes_the_worse_of_plain_and_clipped():
    values, old = torch.tensor([[1.0, 0.1]]), torch.tensor([[0.0, 0.0]])
    returns, mask = torch.tensor([[1.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
    expected = 0.5 * ((1.0 - 0.2) ** 2 + 0.9**2) / 2
    assert value_loss(values, old, returns, mask).item() == pytest.approx(expected)
    unclipped = 0.5 * (0.0 + 0.9**2) / 2
    assert value_loss(values, old, returns, mask, clip=10.0).item() == pytest.approx(unclipped)


def ppo_batch(kl_coef):
    rewards, values, mask = random_batch(seed=7)
    logp = -torch.rand(6, 7, dtype=torch.float64)
    batch = Batch(
        mask=mask,
        rewards=rewards[:, 0],
        keep=torch.ones(6, dtype=torch.bool),
        online=torch.ones(6, dtype=torch.bool),
        group_size=1,
        behaviour_logp=logp,
        ref_logp=logp - 0.5,
        values=values,
    )
    return PPO(options_of("ppo", kl_coef=kl_coef), reward_high=1.0).prepare(batch), batch


def test_returns_are_those_before_whitening_and_carry_the_kl_penalty():
    free, batch = ppo_batch(kl_coef=0.0)
    torch.testing.assert_close(
        free.returns, batch.rewards.unsqueeze(-1).expand_as(batch.mask).masked_fill(~batch.mask, 0)
    )
    penalised, _ = ppo_batch(kl_coef=0.1)
    tokens_to_go = batch.mask.flip(1).cumsum(1).flip(1).masked_fill(~batch.mask, 0)
    torch.testing.assert_close(penalised.returns, free.returns - 0.1 * 0.5 * tokens_to_go)


def test_with_values_of_turns_an_answer_is_one_action_with_the_sum_of_its_rewards():
    """Two answers of two tokens, three tokens of an observation between them; γ = ½, λ = ¾.

    δ₂ = r₃ + r₄ − V₂ and A₂ = δ₂; δ₁ = r₁ + r₂ + γ V₂ − V₁ and A₁ = δ₁ + γ λ A₂.
    """
    nan = float("nan")
    rewards = torch.tensor([[1.0, 2.0, nan, nan, nan, 3.0, 4.0, nan]])
    values = torch.tensor([[0.5, nan, nan, nan, nan, 0.25, nan, nan]])
    mask = torch.tensor([[1, 1, 0, 0, 0, 1, 1, 0]]).bool()
    advantages, returns = turn_gae(rewards, values, mask, gamma=0.5, lam=0.75)
    second = 7 - 0.25
    first = 3 + 0.5 * 0.25 - 0.5 + 0.5 * 0.75 * second
    torch.testing.assert_close(
        advantages, torch.tensor([[first] * 2 + [0.0] * 3 + [second] * 2 + [0.0]])
    )
    expected = torch.zeros(1, 8)
    expected[0, 0], expected[0, 5] = first + 0.5, second + 0.25
    torch.testing.assert_close(returns, expected)
