"""PPO's parts against hand-written sums."""

from dataclasses import replace

import pytest
import torch

import algorithms
from algorithms.base import Batch, PolicyOutput
from algorithms.ppo import (
    PPO,
    PPOConfig,
    clipped_surrogate,
    gae,
    penalised_rewards,
    terminal_rewards,
    turn_gae,
    value_loss,
)
from algorithms.tensors import masked_sum
from envs.command_line import parse_values
from tests.algorithms.batches import OBSERVED, evaluated, padded, raw
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


def test_gae_with_lambda_1_is_reward_to_go_minus_value():
    rewards, values, mask = random_batch(seed=2)
    advantages, returns = gae(rewards, values, mask)
    to_go = rewards.masked_fill(~mask, 0).flip(1).cumsum(1).flip(1).masked_fill(~mask, 0)
    torch.testing.assert_close(returns, to_go)
    torch.testing.assert_close(advantages, (to_go - values).masked_fill(~mask, 0))


def test_gae_reads_nothing_at_masked_positions():
    rewards, values, mask = random_batch(seed=4)
    dirty = gae(rewards.masked_fill(~mask, float("nan")), values.masked_fill(~mask, 1e9), mask)
    for clean, other in zip(gae(rewards, values, mask), dirty, strict=True):
        torch.testing.assert_close(clean, other)


def test_at_ratio_1_the_gradient_is_the_plain_policy_gradient():
    _, advantages, mask = random_batch(seed=1)
    logp = -torch.rand(6, 7, dtype=torch.float64)
    current = logp.clone().requires_grad_(True)
    clipped_surrogate(current, logp, advantages, mask).backward()
    plain = logp.clone().requires_grad_(True)
    (-(advantages * plain * mask).sum() / mask.sum()).backward()
    torch.testing.assert_close(current.grad, plain.grad)


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


def test_unequal_clip_bounds():
    logp = torch.tensor([[1.0]], requires_grad=True)
    mask = torch.ones(1, 1, dtype=torch.bool)
    inputs = (logp, torch.zeros(1, 1), torch.ones(1, 1), mask)
    assert clipped_surrogate(*inputs, clip_high=0.28).item() == pytest.approx(-1.28)


def test_an_absurd_ratio_stays_finite():
    logp, old = torch.tensor([[-1.0]], requires_grad=True), torch.tensor([[-500.0]])
    loss = clipped_surrogate(logp, old, -torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logp.grad).all()


def test_value_loss_takes_the_worse_of_plain_and_clipped():
    values, old = torch.tensor([[1.0, 0.1]]), torch.tensor([[0.0, 0.0]])
    returns, mask = torch.tensor([[1.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
    expected = 0.5 * ((1.0 - 0.2) ** 2 + 0.9**2) / 2
    assert value_loss(values, old, returns, mask).item() == pytest.approx(expected)
    unclipped = 0.5 * (0.0 + 0.9**2) / 2
    assert value_loss(values, old, returns, mask, clip=10.0).item() == pytest.approx(unclipped)


def test_the_reward_is_on_the_last_response_token():
    mask = torch.tensor([[True, True, False], [True, True, True], [False, True, False]])
    placed = terminal_rewards(torch.tensor([1.0, 2.0, 3.0]), mask)
    assert placed.tolist() == [[0, 1, 0], [0, 0, 2], [0, 3, 0]]


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


def test_advantages_are_whitened_over_the_whole_batch():
    prepared, batch = ppo_batch(kl_coef=0.0)
    live = prepared.advantages[batch.mask]
    assert live.mean().item() == pytest.approx(0, abs=1e-9)
    assert live.std(unbiased=False).item() == pytest.approx(1, abs=1e-6)


def test_needs_follow_the_options():
    assert PPO(options_of("ppo"), 1.0).needs.critic == "separate"
    assert PPO(options_of("ppo", critic="shared"), 1.0).needs.critic == "shared"
    assert PPO(options_of("ppo"), 1.0).needs.reference
    assert not PPO(options_of("ppo", kl_coef=0.0), 1.0).needs.reference
    assert PPO(options_of("ppo", entropy_coef=0.01), 1.0).needs.entropy_graph


def test_the_entropy_bonus_raises_entropy():
    batch, _ = ppo_batch(kl_coef=0.0)
    entropy = torch.rand(6, 7, dtype=torch.float64, requires_grad=True)
    output = PolicyOutput(logp=batch.behaviour_logp, entropy=entropy, values=batch.values)
    loss, _ = PPO(options_of("ppo", kl_coef=0.0, entropy_coef=0.3), 1.0).loss(output, batch)
    loss.backward()
    expected = batch.mask.double() * (-0.3 / batch.mask.sum())
    torch.testing.assert_close(entropy.grad, expected)


@pytest.mark.parametrize("bad", [{"critic": "both"}, {"lam": 1.5}, {"clip_low": 0}])
def test_bad_options_are_named(bad):
    with pytest.raises(ValueError, match=f"algo.{next(iter(bad))}"):
        parse_values(PPOConfig, bad, "algo")


def without_critic(**options):
    return PPO(options_of("ppo", critic="none", **options), 1.0)


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (1.0, 0.95), (0.97, 0.9)])
def test_without_a_critic_an_advantage_is_the_weighted_sum_of_the_rewards_from_there(gamma, lam):
    _, batch = ppo_batch(kl_coef=0.0)
    blind = replace(batch, values=None)
    prepared = without_critic(kl_coef=0.1, gamma=gamma, lam=lam).prepare(blind)
    rewards = terminal_rewards(batch.rewards, batch.mask) - 0.1 * 0.5 * batch.mask
    sums = torch.zeros_like(rewards)
    for row, live in enumerate(batch.mask):
        own = rewards[row][live]
        weights = [(gamma * lam) ** k for k in range(len(own))]
        sums[row][live] = torch.stack(
            [sum(w * r for w, r in zip(weights, own[t:], strict=False)) for t in range(len(own))]
        )
    live = sums[batch.mask]
    expected = (live - live.mean()) / (live.var(correction=0) + 1e-8).sqrt()
    torch.testing.assert_close(prepared.advantages[batch.mask], expected)


def test_without_a_critic_there_is_no_value_loss():
    _, batch = ppo_batch(kl_coef=0.0)
    blind = replace(batch, values=None)
    ppo = without_critic(kl_coef=0.0)
    assert (ppo.needs.critic, ppo.needs.critic_warmup) == ("none", 0)
    prepared = ppo.prepare(blind)
    logp = batch.behaviour_logp + 0.1
    loss, metrics = ppo.loss(PolicyOutput(logp=logp, entropy=logp), prepared)
    surrogate = clipped_surrogate(logp, batch.behaviour_logp, prepared.advantages, batch.mask)
    torch.testing.assert_close(loss, surrogate)
    assert set(metrics) == {"ppo/surrogate", "clip_share"}


def test_the_critics_warm_up_is_an_option_of_every_objective_with_ppos_critic():
    for name in ("ppo", "apa", "vapo", "pf_ppo", "ppo_ewma"):
        assert algorithms.make(name, critic_warmup=7).needs.critic_warmup == 7
    assert algorithms.make("ppo").needs.critic_warmup == 0
    assert algorithms.make("vapo").needs.critic_warmup == 50


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


def test_with_kl_mean_an_answer_is_penalised_by_its_mean_log_ratio():
    """RLEF takes the mean over an answer, so a longer one is not penalised more.

    Answers of two and of one token; log-ratios 1, 3 and 5; what is observed has none.
    """
    nan = float("nan")
    mask = torch.tensor([[1, 1, 0, 1, 0]]).bool()
    batch = Batch(
        mask=mask,
        rewards=torch.tensor([1.0]),
        keep=torch.ones(1, dtype=torch.bool),
        online=torch.ones(1, dtype=torch.bool),
        group_size=1,
        behaviour_logp=torch.tensor([[1.0, 3.0, nan, 5.0, nan]]),
        ref_logp=torch.tensor([[0.0, 0.0, nan, 0.0, nan]]),
    )
    mean = penalised_rewards(batch, 0.1, kl_mean=True).masked_fill(~mask, 0.0)
    torch.testing.assert_close(mean, torch.tensor([[-0.05, -0.15, 0.0, 0.5, 0.0]]))
    summed = penalised_rewards(batch, 0.1).masked_fill(~mask, 0.0)
    torch.testing.assert_close(summed, torch.tensor([[-0.1, -0.3, 0.0, 0.5, 0.0]]))
    ppo = PPO(options_of("ppo", kl_coef=0.1, kl_mean=True, critic="none", value_unit="turn"), 1.0)
    returns = ppo.outcomes(batch)  # of the first answer −.1 (1 + 3)/2 + 1 − .1 · 5
    torch.testing.assert_close(returns, torch.tensor([[0.3, 0.0, 0.0, 0.5, 0.0]]))
    torch.testing.assert_close(ppo.prepare(batch).returns, returns)


def test_of_a_single_answer_the_turns_value_is_the_prompts():
    """λ = 1: A = Σ_t r_t − V(prompt) at every token, as a baseline of the whole response."""
    tensors, lengths, _ = raw(seed=3)
    rewards, mask = padded(tensors["logp"], lengths, 1, 2, "right")
    values, _ = padded(tensors["values"], lengths, 1, 2, "right")
    advantages, _ = turn_gae(rewards, values, mask, gamma=1.0, lam=1.0)
    whole = masked_sum(rewards, mask) - values[:, 1]
    torch.testing.assert_close(advantages, whole.unsqueeze(-1).expand_as(mask) * mask)


@pytest.mark.parametrize("cut", [1, 5])
def test_with_values_of_turns_micro_batches_of_conversations_add_up(cut):
    """Their shares of answers are not those of tokens; only values before an answer learn."""
    algorithm, case = algorithms.make("ppo", value_unit="turn"), raw(seed=2)
    layout = (1, 0, "observed")
    whole = evaluated(algorithm, *case, layout=layout)
    parts = evaluated(algorithm, *case, layout=layout, cut=cut)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    first_of_answers = {0, *(token for token, _ in OBSERVED)}
    learned = set(whole[2].nonzero()[:, 1].tolist())
    assert learned == first_of_answers
