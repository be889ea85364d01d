"""What is special to each objective: the tokens and responses that it weighs, masks or draws."""

import math

import numpy as np
import pytest
import torch

from algorithms.regressions import rejection_sample
from tests.algorithms.batches import fresh, raw
from tests.algorithms.pulls import OWN, TOKEN, at_start, make, pull, same


def drawn(rewards, count, beta, seed=0):
    """The rows of each group that rejection sampling draws, from random numbers."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.ones_like(rewards, dtype=torch.bool)
    kept[:, 0] = False
    uniforms = torch.rand(count, *rewards.shape, generator=generator, dtype=torch.float64)
    return rejection_sample(rewards, kept, list(uniforms), count, beta)


def test_rso_draws_as_from_the_optimum():
    rewards = torch.tensor([9.0] + [1.0] * 32 + [0.0] * 32).double().expand(1000, -1)
    taken = drawn(rewards, 8, beta=0.5)
    assert (taken.sum(-1) == 8).all()
    assert not taken[:, 0].any()  # it is not kept
    share = taken[:, 1:33].sum() / taken.sum()
    assert float(share) == pytest.approx(1 / (1 + math.exp(-2)), abs=0.01)
    few = drawn(rewards[:, 30:38], 4, beta=0.01)  # two of the best but one that is not kept
    assert few[:, 1:3].all()
    assert (few.sum(-1) == 4).all()


def test_cispo_within_its_cap_is_the_unclipped_surrogate_and_beyond_it_keeps_a_gradient():
    case, wide = raw(21), {"clip_low": 0.999, "clip_high": 1e9}
    unclipped = pull(make("grpo", **{**TOKEN, **wide}), case)[1]
    same(pull(make("cispo", cap=1e9), case)[1], unclipped)
    assert ((pull(make("cispo", cap=0.01), case)[1] != 0) == (unclipped != 0)).all()


def test_rec_keeps_what_lies_in_its_bands():
    tensors, lengths, rewards = raw(22)
    logs = torch.tensor([-2.0, -0.1, 0.0, 0.1, 0.5, 2.0], dtype=torch.float64)  # of the ratio
    tensors["behaviour_logp"] = tensors["logp"] - logs
    case = (tensors, torch.full_like(lengths, 6), rewards)
    for side, good, bad in [
        ("one", [1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1]),
        ("two", [0, 1, 1, 1, 0, 0], [0, 1, 1, 1, 0, 0]),
        ("ring", [1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 0, 1]),
    ]:
        live = (pull(make("rec", side=side), case)[1][:2] != 0).int().tolist()
        assert live == [bad, good]  # rewards 0 and 1


def test_dppo_drops_what_has_moved_too_far_in_probability():
    tensors, lengths, rewards = raw(23)
    p = torch.tensor([0.9, 0.6, 0.1, 0.02, 0.5, 0.5], dtype=torch.float64)
    q = torch.tensor([0.5, 0.5, 0.5, 0.001, 0.45, 0.55], dtype=torch.float64)
    tensors["logp"], tensors["behaviour_logp"] = p.log().expand(12, 6), q.log().expand(12, 6)
    case = (tensors, torch.full_like(lengths, 6), rewards)
    pulled = pull(make("dppo", quadratic_coef=0.0), case)[1][:2]
    bad, good = (pulled != 0).int().tolist()
    assert good == [0, 1, 1, 1, 1, 1]
    assert bad == [1, 1, 0, 1, 1, 1]
    back = pull(make("dppo", quadratic_coef=0.5), case)[1][:2] - pulled
    same(back, (p / q).log().expand(2, 6), 1 / 48)  # of all tokens, those that are gone too


def test_bapo_moves_its_bounds_until_the_signs_are_balanced():
    case = raw(28)
    start = make("grpo", **TOKEN | {"clip_low": 0.4})
    same(pull(make("bapo", balance=0.0), case)[1], pull(start, case)[1])
    bapo = make("bapo", balance=1.0)
    rho = torch.tensor([0.1, 0.2, 2.0, 2.5], dtype=torch.float64)
    a = torch.tensor([-1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
    low, high = bapo.bounds(rho.log(), a)
    assert (low, high) == pytest.approx((0.6, 1.2))  # 2.4 against 1.2
    low, high = bapo.bounds(rho.log(), a * torch.tensor([3.0, 3.0, 1.0, 1.0]))
    assert (low, high) == pytest.approx((0.9, 3.0))  # 4.5 against 5.4: as far as it goes
    low, high = bapo.bounds(rho.log(), a * torch.tensor([2.2, 2.2, 1.0, 1.0]))
    assert (low, high) == pytest.approx((0.9, 2.0))  # 4 against 3.96


def test_pf_ppo_learns_from_the_best_and_the_worst():
    tensors, lengths, _ = raw(31)
    rewards = torch.tensor([0.5, 1.0, 0.2, 0.0] * 3, dtype=torch.float64)
    case = (tensors, lengths, rewards)
    kept = (pull(make("pf_ppo", kl_coef=0.0), case, policies=fresh)[1] != 0).any(-1)
    assert kept[:8].view(2, 4).tolist() == [[False, True, False, True]] * 2


def test_ppo_ewma_is_ppo_on_responses_of_the_average_and_unclipped_if_that_is_the_policy():
    (tensors, *rest), options = raw(38), {"kl_coef": 0.0}
    ewma, ppo = make("ppo_ewma", **options), make("ppo", **options)
    case = ({**tensors, "proximal_logp": tensors["behaviour_logp"]}, *rest)
    for one, other in zip(pull(ewma, case), pull(ppo, case), strict=True):
        same(one, other)
    case = ({**tensors, "proximal_logp": tensors["logp"]}, *rest)
    wide = make("ppo", clip_low=0.999, clip_high=1e9, **options)
    unclipped = pull(wide, case)[1]
    assert (unclipped - pull(ppo, case)[1]).abs().max() > 1e-3
    same(pull(ewma, case)[1], unclipped)


def test_rto_is_ppo_with_bounded_token_rewards_of_a_dpo_model():
    """By hand in numpy; and PPO itself if that model is the reference."""
    (tensors, lengths, rewards), options = raw(39), {"kl_coef": 0.1, "critic": "none"}
    tensors["precedent_logp"] = 3 * tensors["new_values"]
    rto, ppo = make("rto", **options), make("ppo", **options)
    case = {**tensors, "precedent_logp": tensors["ref_logp"]}, lengths, rewards
    for one, other in zip(pull(rto, case), pull(ppo, case), strict=True):
        same(one, other)
    logp, mu, ref, dpo = (
        tensors[name].detach().numpy()
        for name in ("logp", "behaviour_logp", "ref_logp", "precedent_logp")
    )
    returns, terms = [], []
    paid = np.clip(0.05 * (dpo - ref), -0.05, 0.05) - 0.1 * (mu - ref)
    for row, (length, reward) in enumerate(zip(lengths.tolist(), rewards.tolist(), strict=True)):
        returns += [reward + paid[row, t:length].sum() for t in range(length)]
        terms += [(row, t) for t in range(length)]
    advantages = (returns - np.mean(returns)) / np.sqrt(np.var(returns) + 1e-8)
    ratios = np.exp([logp[at] - mu[at] for at in terms])
    clipped = np.minimum(ratios * advantages, np.clip(ratios, 0.8, 1.2) * advantages)
    loss = pull(rto, (tensors, lengths, rewards), keep=None)[0]
    assert float(loss) == pytest.approx(-clipped.mean(), rel=1e-12)
    assert (np.abs(0.05 * (dpo - ref)) > 0.05).any()  # the bound is met


def test_remixs_weight_of_the_base_falls_by_a_tenth_each_ten_batches():
    """λ(t) = max(1 − .1 ⌈max(t − 50, 0) / 10⌉, .5), t from 1 (2507.06892)."""
    remix = make("remix")
    at = {1: 1.0, 50: 1.0, 51: 0.9, 60: 0.9, 61: 0.8, 90: 0.6, 91: 0.5, 500: 0.5}
    assert {t: remix.base_weight(t - 1) for t in at} == pytest.approx(at)


@pytest.mark.parametrize("start", [0.5, 1.0, 2.5])  # π_k/μ
def test_remixs_band_lies_around_where_the_batch_began(start):
    """r = π/μ may go up to π_k/μ + ε for a good response, down to π_k/μ − ε for a bad one."""
    tensors, lengths, _ = raw(63)
    rewards = torch.tensor([1.0, 0.0] * 6, dtype=torch.float64)
    distances = torch.tensor([-0.3, -0.3, -0.1, -0.1, 0.1, 0.1, 0.3, 0.3]).double()
    behaviour = torch.full_like(tensors["logp"], -2.0)
    ratio = torch.cat([start + distances, torch.ones(4).double()]).unsqueeze(-1)
    policies = {"behaviour_logp": behaviour, "start_logp": behaviour + math.log(start)}
    case = ({**tensors, **policies, "logp": behaviour + ratio.log()}, lengths, rewards)
    moved = (pull(make("remix", kl_coef=0.0), case, keep=OWN)[1] != 0).any(-1)[:8]
    good, bad = moved[::2].tolist(), moved[1::2].tolist()
    assert (good, bad) == ([True, True, True, False], [False, True, True, True])


def test_repo_compares_fresh_and_replayed_responses_with_their_own_kind():
    tensors, lengths, _ = raw(43)
    rewards = torch.tensor([1.0, 0.0, 1.0, 1.0] * 3, dtype=torch.float64)
    fresh, case = torch.tensor([True, True, False, False] * 3), (tensors, lengths, rewards)
    live = (torch.arange(6) < lengths.unsqueeze(-1)).double()
    wide = {"clip_low": 0.999, "clip_high": 1e9, "scale_by_std": False}
    split = pull(make("repo", **wide), case, policies=at_start, fresh=fresh)[1]
    expected = torch.tensor([-0.5, 0.5, 0.0, 0.0] * 2).double()  # the replayed are all right
    same(split[:8], expected.unsqueeze(-1) * (live / lengths.unsqueeze(-1))[:8] / 8)
    mixed = pull(make("repo", baseline="mixed"), case, fresh=fresh)[1]
    grpo = pull(make("grpo", kl_coef=0.0), case)[1]
    same(mixed, grpo)
    weighed = pull(make("repo", baseline="mixed", replay_coef=0.25), case, fresh=fresh)[1]
    same(weighed, grpo * torch.where(fresh, 1.0, 0.25).unsqueeze(-1))


def mixed(seed):
    """Row 1 of each group is an accepted data-set program, row 2 a failed one."""
    tensors, lengths, rewards = raw(seed)
    rewards = torch.tensor([0.0, 1.0, 0.0, 1.0] * 3).to(rewards)
    online = torch.tensor([True, False, False, True] * 3)
    return (tensors, lengths, rewards), online, (torch.arange(6) < lengths.unsqueeze(-1)).double()


def test_srft_token_by_token():
    case, online, live = mixed(37)
    grad = pull(make("srft"), case, online=online, policies=fresh)[1]
    p, tokens = case[0]["logp"].exp(), live[[0, 1, 3, 4, 5, 7]].sum()
    # the batch's entropy
    h = (case[0]["logp"] * live).sum(-1, keepdim=True) / case[1].unsqueeze(-1)
    a = (1 - 2 / 3) / (math.sqrt(1 / 3) + 1e-6)  # of 0, 1, 1: mean 2/3, std 0.577
    same(grad[[1, 5]], ((-0.5 * (-h).exp() - a * p) * live / tokens)[[1, 5]])
    same(grad[[3, 7]], (-0.1 * h.exp() * live / tokens)[[3, 7]])
    same(grad[[0, 4]], (live / tokens)[[0, 4]])
