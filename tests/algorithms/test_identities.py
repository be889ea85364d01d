"""Identities between objectives: in float64, on ragged, split batches with one group dropped."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from algorithms.base import Batch, PolicyOutput
from algorithms.policy_gradient import pass_at_k_rewards
from algorithms.spo import SPO
from tests.algorithms.batches import GROUP, fresh, gradient, raw
from tests.algorithms.pulls import (
    BETA,
    KEEP,
    OWN,
    TOKEN,
    advantages,
    at_start,
    make,
    pair_case,
    pull,
    same,
    sums,
)
from tests.compose import options_of

SQUARED = {
    "gvpo": lambda s: s / (2 * (GROUP - 1)),
    "tba": lambda s: s / (GROUP * BETA**2),
    "copg": lambda s: GROUP * s / (GROUP - 1),
}


@pytest.mark.parametrize("name", SQUARED)
def test_1_gvpo_tba_and_copg_are_one_sum_of_squares(name):
    case = raw(1)
    loss, grad = pull(make(name, beta=BETA), case)
    tensors = {**case[0], "logp": case[0]["logp"].clone().requires_grad_(True)}
    h = sums((tensors, *case[1:]), "logp") - sums(case, "ref_logp")
    e = (BETA * h - case[2])[:8].view(2, GROUP)
    s = (e - e.mean(-1, keepdim=True)).square().sum(-1)  # the mean is not detached here
    whole = SQUARED[name](s).mean()
    whole.backward()
    same(loss, whole.detach())
    same(grad, tensors["logp"].grad)


def test_2_spo_squared_with_the_groups_value_is_gvpo():
    case, spo = raw(3), SPO(options_of("spo", beta=BETA, loss="squared", q0="group"), 1.0)
    for one, other in zip(pull(make("gvpo", beta=BETA), case), pull(spo, case), strict=True):
        same(one, other, GROUP / (2 * (GROUP - 1)))


def test_3_gvpo_is_rloo_with_the_kl_in_the_reward_on_fresh_responses():
    case = raw(5)
    gvpo = pull(make("gvpo", beta=BETA), case, policies=fresh)[1]
    same(gvpo, pull(make("rloo", kl_coef=BETA), case, policies=fresh)[1], BETA)
    stale = pull(make("rloo", kl_coef=BETA), case)[1]
    assert (gvpo - BETA * stale).abs().max() > 1e-3  # they differ on stale responses


def test_4_at_the_reference_all_squares_point_where_dr_grpo_does():
    case = raw(6)
    dr_grpo = pull(make("dr_grpo", constant_length=1), case, policies=at_start)[1]
    assert dr_grpo.abs().max() > 0
    same(pull(make("kimi"), case, policies=at_start)[1], dr_grpo)
    gvpo = pull(make("gvpo", beta=BETA), case, policies=at_start)[1]
    same(gvpo, dr_grpo, BETA * GROUP / (GROUP - 1))


def test_5_the_values_part_of_dro_is_the_same_residual():
    tensors, lengths, rewards = case = raw(8)
    dro = make("dro", beta=BETA, value_coef=2.0)
    grad = gradient(dro, tensors, lengths, rewards, keep=KEEP, online=OWN, cut=3)[2]
    h = sums(case, "logp") - sums(case, "ref_logp")
    residual = tensors["new_values"][:, 0] - (rewards - BETA * h)
    same(grad[:8, 0], residual[:8] / 8, 2.0)
    assert not grad[:, 1:].any()  # the value sees the prompt alone
    assert not grad[8:].any()


def test_5_astar_po_with_one_beta_is_spo_squared():
    case, spo = raw(9), SPO(options_of("spo", beta=BETA, loss="squared", q0="monte_carlo"), 1.0)
    for one, other in zip(pull(make("astar_po", beta=BETA), case), pull(spo, case), strict=True):
        same(one, other)
    assert make("astar_po").initial_value_beta == 0.5


def test_7_ipo_is_copgs_pair_and_dpo_starts_as_a_quarter_of_it():
    case = pair_case(10)
    copg = pull(make("copg", beta=BETA), case, group=2)
    for one, other in zip(copg, pull(make("ipo", beta=BETA / 2), case, group=2), strict=True):
        same(one, other, BETA**2)
    copg = pull(make("copg", beta=BETA), case, group=2, policies=at_start)[1]
    same(pull(make("dpo", beta=BETA), case, group=2, policies=at_start)[1], copg, 0.25)


@pytest.mark.parametrize(("name", "slope"), [("dpo", BETA / 2), ("ipo", 1 / BETA), ("rso", BETA)])
@pytest.mark.parametrize("right", [1, 2, 3])
def test_8_all_pairs_of_a_binary_group_point_where_dr_grpo_does(name, slope, right):
    tensors, lengths, _ = raw(11)
    rewards = (torch.arange(12) < right).double()
    one_group = {"keep": torch.arange(12) < GROUP, "policies": at_start}
    case = (tensors, lengths, rewards)
    dr_grpo = pull(make("dr_grpo", constant_length=1), case, **one_group)[1]
    factor = slope * GROUP**2 / (right * (GROUP - right))
    same(pull(make(name, beta=BETA), case, **one_group)[1], dr_grpo, factor)


@pytest.mark.parametrize(("n", "c", "k"), [(6, 2, 3), (6, 5, 3), (5, 0, 2), (5, 5, 5), (4, 1, 1)])
def test_9_each_responses_part_in_pass_at_k_by_counting_every_draw(n, c, k):
    accepted = torch.arange(n) < c
    draws, count = list(itertools.combinations(range(n), k)), math.comb(n, k)
    solved = [any(accepted[i] for i in draw) for draw in draws]
    part = [sum(s for s, d in zip(solved, draws, strict=True) if i in d) / count for i in range(n)]
    only = [[i for i in draw if accepted[i]] for draw in draws]
    alone = [only.count([i]) / count for i in range(n)]
    counts = (torch.full((n,), float(n)).double(), k, torch.full((n,), float(c)).double())
    got = pass_at_k_rewards(accepted, *counts)
    same(got, torch.tensor(part, dtype=torch.float64))
    assert float(got.sum()) == pytest.approx(k * sum(solved) / count)
    pkpo, rewards = make("pkpo", k=k), accepted.double()
    same(advantages(pkpo, rewards), torch.tensor(alone, dtype=torch.float64))
    passk = advantages(make("passk", k=k), rewards)
    assert float(passk.sum()) == pytest.approx(0, abs=1e-9)
    q = sum(solved) / count
    expected = (got - got.mean()) * n / (k * math.sqrt(q * (1 - q))) if 0 < q < 1 else 0 * got
    same(passk, expected)


def test_10_asymre_adds_maximum_likelihood_of_every_response():
    case = raw(15)
    everything = (case[0], case[1], torch.ones_like(case[2]))
    plain, tilted = (pull(make("asymre", delta_v=v), case)[1] for v in (0.0, -0.1))
    same(tilted, plain + 0.1 * pull(make("sft"), everything)[1])
    same(pull(make("opmd", tau=2.0), case)[1], plain, 1 / 3)


FRESH = {
    "cispo": {},
    "rec": {"scale_by_std": True},
    "rec importance": {"scale_by_std": True, "importance": True},
    "dppo": {"scale_by_std": True},
    "bapo": {},
    "m2po": {},
    "kl_cov": {},
    "clip_cov": {"share": 0.0},
    "asymre": {"delta_v": 0.0},
    "gspo": {"aggregate": "token_mean"},
    "chord": {"imitation_share": 0.0},
}


@pytest.mark.parametrize("name", FRESH)
def test_11_on_fresh_responses_they_share_one_gradient(name):
    case = raw(16)
    scaled = {"scale_by_std": name != "asymre"}
    grpo = pull(make("grpo", **TOKEN, **scaled), case, policies=fresh)[1]
    got = pull(make(name.split()[0], **FRESH[name]), case, policies=fresh)[1]
    if name != "gspo":
        same(got, grpo)
    gspo = pull(make("gspo"), case, policies=fresh)[1]
    same(gspo, pull(make("grpo", kl_coef=0.0), case, policies=fresh)[1])


def test_ppo_without_a_critic_is_reinforce_with_whitened_returns_of_each_token():
    """REINFORCE++ with PPO's options; on fresh responses −A log π, A the whitened reward-to-go."""
    tensors, lengths, rewards = case = raw(18)
    ppo, plain = make("ppo", critic="none", kl_coef=0.05), make("reinforce_pp", kl_coef=0.05)
    for one, other in zip(pull(ppo, case), pull(plain, case), strict=True):
        same(one, other)
    live = torch.arange(6) < lengths.unsqueeze(-1)
    kl = (tensors["logp"] - tensors["ref_logp"]).masked_fill(~live, 0.0)
    returns = rewards.unsqueeze(-1) - 0.05 * kl.flip(1).cumsum(1).flip(1)
    own = returns[:8][live[:8]]
    a = (returns - own.mean()) / (own.var(correction=0) + 1e-8).sqrt()
    expected = (-a / live[:8].sum()).masked_fill(~live, 0.0)
    same(pull(ppo, case, policies=fresh)[1][:8], expected[:8])


def test_5_dro_with_the_groups_value_is_gvpo():
    tensors, lengths, rewards = raw(7)
    case = (tensors, lengths, rewards)
    h = sums(case, "logp") - sums(case, "ref_logp")
    value = (rewards - BETA * h).view(-1, GROUP).mean(-1).repeat_interleave(GROUP)
    with_value = {**tensors, "new_values": value.unsqueeze(-1).expand_as(tensors["logp"]).clone()}
    dro = pull(make("dro", beta=BETA), (with_value, lengths, rewards))[1]
    same(dro, pull(make("gvpo", beta=BETA), case)[1], (GROUP - 1) / GROUP / BETA)


def test_cppo_that_prunes_nothing_is_grpo_and_keeps_the_rarer_verdict():
    case = raw(30)
    same(pull(make("cppo", prune=0.0), case)[1], pull(make("grpo"), case)[1])
    tensors, lengths, _ = case
    rewards = torch.tensor([0.0, 1.0, 0.0, 0.0] * 3, dtype=torch.float64)
    kept = (pull(make("cppo", kl_coef=0.0), (tensors, lengths, rewards))[1] != 0).any(-1)
    assert kept[[1, 5]].all()
    assert kept[:8].view(2, 4).sum(-1).tolist() == [2, 2]


@pytest.mark.parametrize("options", [{"base_least": 1.0}, {"kl_coef": 0.0}])
def test_remix_of_this_batchs_responses_and_one_base_is_grpo(options):
    """λ = 1, and all responses are of the policy at the start of the batch."""
    (tensors, *rest), options = raw(61), {"kl_coef": 0.5} | options
    case = ({**tensors, "start_logp": tensors["behaviour_logp"]}, *rest)
    grpo = make("grpo", kl_coef=options["kl_coef"])
    for one, other in zip(pull(make("remix", **options), case), pull(grpo, case), strict=True):
        same(one, other)


def test_remixs_kl_is_a_mixture_of_two():
    (tensors, *rest), options = raw(62), {"kl_coef": 0.5}
    case = ({**tensors, "start_logp": tensors["behaviour_logp"]}, *rest)
    other = ({**tensors, "ref_logp": case[0]["ref_logp"].flip(0)}, *rest)
    case[0]["precedent_logp"] = other[0]["ref_logp"]
    mixed = pull(make("remix", **options), case, batches=60)  # λ = .8
    pairs = [pull(make("grpo", **options), each) for each in (case, other)]
    for got, one, two in zip(mixed, *pairs, strict=True):
        same(got, 0.8 * one + 0.2 * two)


def test_10_oapl_is_spo_squared_whose_reference_is_the_writer():
    tensors, *rest = raw(12)
    case = ({**tensors, "ref_logp": tensors["behaviour_logp"]}, *rest)
    spo = make("spo", beta=BETA, loss="squared", q0="group_soft")
    for one, other in zip(
        pull(make("oapl", beta=BETA, value_beta=BETA), case), pull(spo, case), strict=True
    ):
        same(one, other)


def weight_of_prompt(name, right, n=8, **options):
    """w of the pulls −w (r − p)/n on each response's log-prob, p = right/n, where π = μ = π_ref."""
    rewards = (torch.arange(n) < right).double()
    tensors = dict.fromkeys(("logp", "behaviour_logp", "ref_logp", "policy_logp", "new_values"))
    tensors = {key: torch.full((n, 1), -1.0, dtype=torch.float64) for key in tensors}
    case, kept = (tensors, torch.ones(n, dtype=torch.long), rewards), torch.ones(n).bool()
    pulls = pull(make(name, **options), case, keep=kept, online=kept, cut=None, group=n)[1]
    weights = -n * pulls.flatten() / (rewards - right / n)
    same(weights, weights[:1].expand(n))
    return float(weights[0])


@pytest.mark.parametrize("right", [1, 3, 4, 7])
def test_11_the_weight_of_a_prompt_by_its_success_rate(right):
    """Of r − p: RLOO 1, GRPO 1/√(p (1 − p)), MaxRL 1/p, SPO with the soft value 1/(1 − p)."""
    p, n = right / 8, 8
    weight = lambda name, **options: weight_of_prompt(name, right, **options)  # noqa: E731
    assert weight("rloo", kl_coef=0.0) == pytest.approx(n / (n - 1))
    bessel = math.sqrt(n / (n - 1))
    grpo = weight("grpo", kl_coef=0.0)
    assert grpo == pytest.approx(1 / math.sqrt(p * (1 - p)) / bessel, rel=1e-5)
    assert weight("maxrl") == pytest.approx(1 / p)
    soft = {"beta": 0.02, "loss": "cross_entropy", "q0": "group_soft"}
    unbounded = soft | {"slope_width": 1e-9, "slope_bound": 1e9}
    assert weight("spo", **unbounded) == pytest.approx(1 / (1 - p))
    if p < math.exp(-1):  # beyond it slope_width and slope_bound, both 1, hold the slopes back
        assert weight("spo", **soft) == pytest.approx(1 / (1 - p))


def test_12_maxrl_and_spo_with_the_soft_value_part_where_s_differs_between_responses():
    case, one = raw(13), torch.arange(12) < GROUP
    assert float(case[2][:GROUP].mean()) == 0.25
    spo = make("spo", beta=0.02, loss="cross_entropy", q0="group_soft")
    options = {"keep": one, "policies": at_start}
    maxrl = make("maxrl", aggregate="constant", constant_length=1)
    start = pull(maxrl, case, **options)[1]
    same(pull(spo, case, **options)[1], start, 0.25 / 0.75)
    away = [pull(algorithm, case, keep=one, policies=fresh)[1] for algorithm in (spo, maxrl)]
    ratio = (away[0] / away[1])[:GROUP][away[1][:GROUP] != 0]
    assert ratio.max() - ratio.min() > 0.05


@pytest.mark.parametrize("success_weight", [0.0, 0.1, 1.0])
def test_13_w_reinforce_is_a_weighed_sum_of_both_verdicts(success_weight):
    case = raw(14)
    plain = {"aggregate": "constant", "constant_length": 1, "clip_low": 0.999, "clip_high": 1e9}
    got = pull(make("w_reinforce", success_weight=success_weight, **plain), case, policies=fresh)[1]
    live = (torch.arange(6) < case[1].unsqueeze(-1)) & KEEP.unsqueeze(-1)
    slopes = (1 - (1 + success_weight) * (case[2] > 0).double()) / 8
    same(got, slopes.unsqueeze(-1) * live)
    if success_weight == 0:
        same(pull(make("nsr", **plain), case, policies=fresh)[1], got)


def test_14_max_at_k_is_pkpo_on_binary_rewards():
    case = raw(15)
    for k in (1, 2, 3, 4):
        same(advantages(make("maxk", k=k), case[2]), advantages(make("pkpo", k=k), case[2]))


@pytest.mark.parametrize("k", [2, 3, 5])
def test_15_max_at_k_by_counting_every_draw(k):
    rewards = torch.tensor([0.5, 1.0, 0.2, 0.5, 0.0], dtype=torch.float64)
    draws = list(itertools.combinations(range(5), k))
    gains = [0.0] * 5
    for draw in draws:
        for i in draw:
            others = max(float(rewards[j]) for j in draw if j != i)
            gains[i] += max(0.0, float(rewards[i]) - others) / len(draws)
    same(advantages(make("maxk", k=k), rewards), torch.tensor(gains, dtype=torch.float64))


def test_16_on_fresh_responses_sapo_and_vespo_are_grpo_without_a_kl():
    case = raw(16)
    for name in ("sapo", "vespo"):
        aggregate = make(name).config.aggregate
        grpo = make("grpo", kl_coef=0.0, aggregate=aggregate)
        expected = pull(grpo, case, policies=fresh)[1]
        same(pull(make(name), case, policies=fresh)[1], expected)
        stale = pull(make(name), case)[1]
        assert (stale - pull(grpo, case)[1]).abs().max() > 1e-3


def test_17_vespos_weight_peaks_at_its_mode_and_falls_to_zero_on_both_sides():
    vespo, log_w = make("vespo"), torch.linspace(-6, 3, 901, dtype=torch.float64).unsqueeze(-1)
    zeros, ones = torch.zeros_like(log_w), torch.ones(901, dtype=torch.bool)
    for sign, mode in ((1.0, 2 / 3), (-1.0, 3 / 2)):
        batch = Batch(ones.unsqueeze(-1), ones.double(), ones, ones, 1, behaviour_logp=zeros)
        batch = replace(batch, advantages=sign * ones.double().unsqueeze(-1))
        leaf = log_w.clone().requires_grad_(True)
        vespo.terms(leaf, batch).sum().backward()
        weight = -sign * leaf.grad.flatten()
        assert float(log_w[weight.argmax()].exp()) == pytest.approx(mode, rel=0.01)
        assert weight[0] < 1e-3 * weight.max() and weight[-1] < 1e-3 * weight.max()
        assert float(weight[600]) == pytest.approx(1.0)


@pytest.mark.parametrize("beta", [0.02, 0.3, 2.0])
def test_18_qrpo_has_the_error_zero_at_the_optimum_of_a_uniform_quantile(beta):
    """π* = π_ref e^{q/β}/Z with q uniform: log π*/π_ref = q/β − log Z, Z by quadrature."""
    q = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    log_z = (q / beta).logsumexp(0) - math.log(len(q))
    h = (q / beta - log_z)[::1000].unsqueeze(-1)
    ones = torch.ones(100, dtype=torch.bool)
    batch = Batch(ones.unsqueeze(-1), ones.double(), ones, ones, 1, ref_logp=torch.zeros_like(h))
    output = PolicyOutput(logp=h, entropy=h)
    loss, _ = make("qrpo", beta=beta).loss(output, replace(batch, q0=q[::1000]))
    assert float(loss) < 1e-9
