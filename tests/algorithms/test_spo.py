"""SPO against what is known exactly: enumeration, other methods' formulas, and its own optimum."""

import itertools
import math

import pytest
import torch

from algorithms.base import Batch, PolicyOutput
from algorithms.grpo import group_advantages
from algorithms.spo import (
    SPO,
    SPOConfig,
    log1mexp,
    pooled_soft_value,
    soft_value,
    spo_loss,
    success_cross_entropy,
    terminal_q,
)
from envs.typed import typed

BETA = 0.5
SLOPE = 100.0
VOCABULARY, LENGTH = 3, 3
RESPONSES = torch.tensor(list(itertools.product(range(VOCABULARY), repeat=LENGTH)))
MASK = torch.ones(len(RESPONSES), LENGTH, dtype=torch.bool)


def prefix_rows(responses):
    """Row of a table with one entry for each prefix, for every token: (batch, time)."""
    rows = []
    for t in range(LENGTH):
        offset = sum(VOCABULARY**i for i in range(t))
        code = torch.zeros(len(responses), dtype=torch.long)
        for i in range(t):
            code = code * VOCABULARY + responses[:, i]
        rows.append(offset + code)
    return torch.stack(rows, 1)


PREFIXES = sum(VOCABULARY**t for t in range(LENGTH))
ROWS = prefix_rows(RESPONSES)


def table_logp(table):
    """Per-token log-probs of all responses under a logit table, (batch, time)."""
    return table.log_softmax(-1)[ROWS, RESPONSES]


@pytest.fixture
def world():
    """A reference policy, rewards in [−1, 0] for all 27 responses, and the exact answer."""
    generator = torch.Generator().manual_seed(3)
    reference = torch.randn(PREFIXES, VOCABULARY, generator=generator, dtype=torch.float64)
    rewards = -torch.rand(len(RESPONSES), generator=generator, dtype=torch.float64)
    ref_logp = table_logp(reference)
    log_unnormalised = ref_logp.sum(-1) + rewards / BETA
    return {
        "reference": reference,
        "ref_logp": ref_logp,
        "rewards": rewards,
        "q0": BETA * log_unnormalised.logsumexp(-1),
        "optimum": log_unnormalised.softmax(-1),
    }


def total_variation(table, optimum):
    return 0.5 * (table_logp(table).sum(-1).exp() - optimum).abs().sum().item()


def fit(world, loss_of, steps=600):
    """Full-support off-policy data: every response once, whatever the policy would write."""
    table = world["reference"].clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS([table], max_iter=steps, tolerance_grad=1e-12, history_size=50)

    def closure():
        optimiser.zero_grad()
        loss = loss_of(table_logp(table))
        loss.backward()
        return loss

    for _ in range(5):
        optimiser.step(closure)
    return table.detach()


@pytest.mark.parametrize(
    ("kind", "bound"), [("squared", 1e-3), ("advantage", 1e-3), ("cross_entropy", 5e-3)]
)
def test_frozen_off_policy_data_lead_to_the_exact_optimum(world, kind, bound):
    q0 = world["q0"].expand(len(RESPONSES))

    def loss_of(logp):
        return spo_loss(logp, world["ref_logp"], MASK, world["rewards"], q0, beta=BETA, kind=kind)

    table = fit(world, loss_of)
    assert total_variation(world["reference"], world["optimum"]) > 0.05
    assert total_variation(table, world["optimum"]) < bound


def test_a_policy_gradient_on_the_same_data_misses_the_optimum(world):
    advantages = group_advantages(world["rewards"], len(RESPONSES))
    table = world["reference"].clone().requires_grad_(True)
    optimiser = torch.optim.Adam([table], lr=0.05)
    for _ in range(500):
        optimiser.zero_grad()
        logp = table_logp(table)
        kl = (logp - world["ref_logp"]).sum(-1)
        (-(advantages * logp.sum(-1)) + BETA * kl).mean().backward()
        optimiser.step()
    assert total_variation(table.detach(), world["optimum"]) > 0.05


def test_soft_value_equals_enumeration(world):
    weights = world["ref_logp"].sum(-1).exp()
    counts = (weights * 10_000).round().long()
    sampled = world["rewards"].repeat_interleave(counts)
    assert soft_value(sampled, BETA).item() == pytest.approx(world["q0"].item(), abs=1e-3)


def test_monte_carlo_soft_value_converges(world):
    generator = torch.Generator().manual_seed(0)
    weights = world["ref_logp"].sum(-1).exp()
    errors = []
    for count in (16, 256, 4096, 65536):
        drawn = torch.multinomial(weights, 64 * count, replacement=True, generator=generator)
        values = soft_value(world["rewards"][drawn].view(64, count), BETA)
        errors.append((values - world["q0"]).square().mean().sqrt().item())
    assert errors[-1] < 3e-3
    assert all(later < earlier / 2 for earlier, later in itertools.pairwise(errors))


@pytest.mark.parametrize("beta", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("solved", [0, 1, 7, 16])
def test_soft_value_of_binary_rewards_has_its_closed_form(beta, solved):
    rewards = torch.tensor([1.0] * solved + [0.0] * (16 - solved))
    p = solved / 16
    # β log(1 − p + p e^{1/β}), with the exponent taken out: e^{100} overflows float32
    expected = 1 + beta * math.log((1 - p) * math.exp(-1 / beta) + p) if p else 0.0
    assert soft_value(rewards, beta).item() == pytest.approx(expected, abs=1e-6)
    assert soft_value(rewards, beta).dtype == torch.float32


def test_soft_value_works_along_any_dimension():
    rewards = torch.rand(4, 6, dtype=torch.float64)
    by_rows = torch.stack([soft_value(row, BETA) for row in rewards])
    torch.testing.assert_close(soft_value(rewards, BETA, dim=1), by_rows)
    torch.testing.assert_close(soft_value(rewards.T, BETA, dim=0), by_rows)


def test_pooled_soft_value_reweights_another_policys_responses(world):
    generator = torch.Generator().manual_seed(1)
    behaviour = torch.randn(PREFIXES, VOCABULARY, generator=generator, dtype=torch.float64)
    log_mu = table_logp(behaviour).sum(-1)
    drawn = torch.multinomial(log_mu.exp(), 200_000, replacement=True, generator=generator)
    log_weights = (world["ref_logp"].sum(-1) - log_mu)[drawn]
    few = world["rewards"][:2]
    value = pooled_soft_value(few, world["rewards"][drawn], log_weights, BETA)
    assert value.item() == pytest.approx(world["q0"].item(), abs=5e-3)
    plain = soft_value(world["rewards"][drawn], BETA)
    assert abs(plain.item() - world["q0"].item()) > 0.02


def test_pooled_soft_value_with_nothing_to_pool_is_the_plain_one():
    rewards = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0])
    none = torch.zeros(0)
    assert pooled_soft_value(rewards, none, none, 0.1).item() == pytest.approx(
        soft_value(rewards.double(), 0.1).item(), abs=1e-12
    )


def self_normalised(rewards, log_weights, beta):
    """(value, effective sample size) with weights divided by their sum, as is often done."""
    total = log_weights.logsumexp(-1)
    value = beta * ((rewards / beta + log_weights).logsumexp(-1) - total)
    return value, torch.exp(2 * total - (2 * log_weights).logsumexp(-1))


@pytest.mark.parametrize("solves", [0.05, 0.3, 0.9, 0.999])
def test_pooling_is_nearer_than_the_reference_alone_however_far_the_writer_has_come(solves):
    """A prompt that π_ref solves in 5 %, and 64 responses of one that solves it in `solves`."""
    beta, p, repeats = 0.1, 0.05, 1000
    generator = torch.Generator().manual_seed(0)
    truth = soft_value(torch.tensor([1.0] * 5 + [0.0] * 95, dtype=torch.float64), beta)
    reference = (torch.rand(repeats, 16, generator=generator) < p).double()
    rewards = (torch.rand(repeats, 64, generator=generator) < solves).double()
    log_weights = torch.where(
        rewards > 0, math.log(p / solves), math.log((1 - p) / (1 - solves))
    ).double()

    def error(values):
        return (torch.stack(list(values)) - truth).square().mean().sqrt().item()

    alone = error(soft_value(row, beta) for row in reference)
    rows = list(zip(reference, rewards, log_weights, strict=True))
    pooled = error(pooled_soft_value(*row, beta) for row in rows)
    assert alone > 0.4
    assert pooled < 0.15
    if solves > 0.9:  # the failures are gone, and nothing tells normalised weights
        values, sizes = zip(*(self_normalised(r, w, beta) for _, r, w in rows), strict=True)
        assert torch.stack(sizes).median() > 60
        assert error(values) > 5 * pooled


def ragged_batch(dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logp = -torch.rand(8, 6, generator=generator, dtype=dtype)
    ref_logp = -torch.rand(8, 6, generator=generator, dtype=dtype)
    mask = torch.arange(6) < torch.randint(1, 7, (8, 1), generator=generator)
    rewards = (torch.rand(8, generator=generator) < 0.5).to(dtype)
    return logp, ref_logp, mask, rewards


def prepared(logp, ref_logp, mask, rewards, group_size, **options):
    batch = Batch(
        mask=mask,
        rewards=rewards,
        keep=torch.ones_like(mask[:, 0]),
        online=torch.ones_like(mask[:, 0]),
        group_size=group_size,
        ref_logp=ref_logp,
        policy_logp=logp.detach(),
    )
    return SPO(SPOConfig(beta=BETA, **options), reward_high=1.0).prepare(batch)


def test_group_value_is_trajectory_balance_with_vargrad():
    """TBA (2503.18929): (log Z + S − r/β)² with log Z = sg mean(r/β − S); ours is β² times it."""
    logp, ref_logp, mask, rewards = ragged_batch()
    batch = prepared(logp, ref_logp, mask, rewards, group_size=4, q0="group")
    ours = spo_loss(logp, ref_logp, mask, rewards, batch.q0, beta=BETA, kind="squared")
    s = ((logp - ref_logp) * mask).sum(-1)
    gap = rewards / BETA - s
    log_z = gap.view(2, 4).mean(-1).repeat_interleave(4)
    trajectory_balance = (log_z - gap).square().mean()
    assert ours.item() == pytest.approx(BETA**2 * trajectory_balance.item(), abs=1e-12)


def test_group_value_is_the_contrastive_pair_loss():
    """CoPG/IPO form: the mean over ordered pairs of ½[(r − βS) − (r′ − βS′)]²."""
    logp, ref_logp, mask, rewards = ragged_batch(seed=5)
    batch = prepared(logp, ref_logp, mask, rewards, group_size=4, q0="group")
    ours = spo_loss(logp, ref_logp, mask, rewards, batch.q0, beta=BETA, kind="squared")
    error = (rewards - BETA * ((logp - ref_logp) * mask).sum(-1)).view(2, 4)
    pairs = 0.5 * (error.unsqueeze(-1) - error.unsqueeze(-2)).square()
    assert ours.item() == pytest.approx(pairs.mean().item(), abs=1e-12)


def test_at_step_0_the_terminal_q_is_the_initial_value():
    logp, _, mask, _ = ragged_batch(torch.float32)
    q0 = torch.rand(8)
    assert torch.equal(terminal_q(logp, logp.clone(), mask, q0, BETA), q0)


def test_the_log_ratio_is_summed_over_response_tokens_only():
    logp, ref_logp = torch.tensor([[-1.0, -2.0, -4.0]]), torch.tensor([[-2.0, -2.5, -9.0]])
    mask = torch.tensor([[True, True, False]])
    q = terminal_q(logp, ref_logp, mask, torch.tensor([0.25]), 2.0)
    assert q.item() == pytest.approx(0.25 + 2.0 * 1.5)


@pytest.mark.parametrize("kind", ["squared", "cross_entropy", "advantage"])
def test_nan_and_infinity_at_masked_positions_reach_nothing(kind):
    logp, ref_logp, mask, rewards = ragged_batch()
    q0 = torch.full((8,), 0.4, dtype=torch.float64)
    dirty = logp.masked_fill(~mask, float("nan")).requires_grad_(True)
    dirty_ref = ref_logp.masked_fill(~mask, -float("inf"))
    clean = logp.clone().requires_grad_(True)
    options = {"beta": BETA, "kind": kind, "reward_high": 1.0}
    spo_loss(dirty, dirty_ref, mask, rewards, q0, **options).backward()
    spo_loss(clean, ref_logp, mask, rewards, q0, **options).backward()
    torch.testing.assert_close(dirty.grad, clean.grad)
    assert torch.equal(clean.grad[~mask], torch.zeros_like(clean.grad[~mask]))


def test_cross_entropy_is_the_textbook_one_where_it_is_well_behaved():
    u = torch.tensor([-8.0, -2.0, -0.5, -0.1], dtype=torch.float64)
    for v in (-6.0, -1.0, -0.3):
        p, q = math.exp(v), u.exp()
        textbook = -(p * q.log() + (1 - p) * (1 - q).log())
        ours = success_cross_entropy(u, torch.full_like(u, v), SLOPE)
        torch.testing.assert_close(ours, textbook, rtol=0, atol=1e-12)
    success = success_cross_entropy(u, torch.zeros_like(u), SLOPE)
    torch.testing.assert_close(success, -u)


def test_cross_entropy_reads_rewards_relative_to_the_best():
    logp, ref_logp, mask, rewards = ragged_batch()
    q0 = torch.full((8,), 0.1, dtype=torch.float64)
    shifted = spo_loss(logp, ref_logp, mask, rewards - 1, q0 - 1, beta=BETA, kind="cross_entropy")
    given = spo_loss(
        logp, ref_logp, mask, rewards, q0, beta=BETA, kind="cross_entropy", reward_high=1.0
    )
    torch.testing.assert_close(given, shifted)


def test_cross_entropy_is_finite_and_pulls_failures_back_whatever_q_is():
    u = torch.tensor([-1e4, -50.0, -1e-3, -1e-8, 0.0, 1e-8, 1e-3, 1.0, 50.0], dtype=torch.float32)
    for v in (-1e-6, -0.05, -1.0, -10.0):
        x = u.clone().requires_grad_(True)
        loss = success_cross_entropy(x, torch.full_like(u, v), SLOPE)
        loss.sum().backward()
        assert torch.isfinite(loss).all()
        assert torch.isfinite(x.grad).all()
        assert (x.grad[u > 0] == SLOPE).all(), f"Q above the best reward at target {v}"
        assert (x.grad[u < min(v - 1e-3, -1e-3)] < 0).all(), f"Q too low at target {v}"
        assert x.grad.abs().max() <= SLOPE * (1 + 1e-5)


def test_cross_entropy_pulls_a_success_up_to_the_best_reward_and_leaves_it_alone_there():
    u = torch.tensor([-1e4, -50.0, -1e-3, 0.0, 1e-3, 1.0, 50.0], requires_grad=True)
    loss = success_cross_entropy(u, torch.zeros(7), SLOPE)
    loss.sum().backward()
    assert u.grad.tolist() == [-1.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0]
    assert loss[3:].tolist() == [0.0] * 4


def on_policy_optimum(p, q0, *, start=None, steps=4000):
    """Where on-policy SPO ends, in exact expectation → (8,) probabilities.

    One prompt, one token: four successes share p under π_ref, four failures the rest.
    """
    beta = 0.1
    ref_logp = torch.tensor([p / 4] * 4 + [(1 - p) / 4] * 4, dtype=torch.float64).log()
    rewards = torch.tensor([1.0] * 4 + [0.0] * 4, dtype=torch.float64)
    logits = (ref_logp if start is None else start).clone().requires_grad_(True)
    optimiser = torch.optim.Adam([logits], lr=0.02)
    for _ in range(steps):
        logp = logits.log_softmax(-1)
        log_q = (q0 + beta * (logp - ref_logp) - 1) / beta
        losses = success_cross_entropy(log_q, (rewards - 1) / beta, SPOConfig().slope_bound)
        optimiser.zero_grad()
        (logp.detach().exp() * losses).sum().backward()
        optimiser.step()
    return logits.detach().softmax(-1)


@pytest.mark.parametrize("solved", [1, 2, 3])
def test_a_noisy_initial_value_puts_no_ceiling_on_success(solved):
    """p = .05 and `solved` of 16 reference responses: p̂ is above p, the optimum has mass .999.

    Before the loss was mended a success stopped at S = (1 − Q̂_0)/β: .80, .40 and .27.
    """
    rewards = torch.tensor([1.0] * solved + [0.0] * (16 - solved), dtype=torch.float64)
    mass = on_policy_optimum(0.05, soft_value(rewards, 0.1).item())[:4].sum()
    assert mass > 0.95


@pytest.mark.parametrize("start", ["reference", "failures", "one success"])
def test_an_exact_initial_value_has_one_optimum_wherever_training_starts(start):
    """The success has no slope above its target, so the rest must hold it: π_θ is normalised."""
    p, beta = 0.05, 0.1
    starts = {
        "reference": None,
        "failures": torch.tensor([-4.0] * 4 + [2.0, 1.0, 0.0, 0.0], dtype=torch.float64),
        "one success": torch.tensor([6.0] + [0.0] * 7, dtype=torch.float64),
    }
    q0 = 1 + beta * math.log((1 - p) * math.exp(-1 / beta) + p)
    found = on_policy_optimum(p, q0, start=starts[start], steps=12_000)
    failures = torch.full((4,), (1 - p) / 4, dtype=torch.float64)
    weights = torch.cat([torch.full_like(failures, p / 4 * math.exp(1 / beta)), failures])
    optimum = weights / weights.sum()
    assert 0.5 * (found - optimum).abs().sum() < 5e-3


def test_cross_entropy_has_its_minimum_at_the_target():
    for v in (-3.0, -0.5, -0.02, -0.001):
        u = v + torch.linspace(-0.5, 0.5, 2001, dtype=torch.float64) * min(1, -4 * v)
        loss = success_cross_entropy(u, torch.full_like(u, v), SLOPE)
        assert u[loss.argmin()].item() == pytest.approx(v, abs=1e-3 * max(1, -v))


def test_a_reward_above_the_best_is_refused():
    logp, ref_logp, mask, rewards = ragged_batch()
    with pytest.raises(ValueError, match="exceeds reward_high=0"):
        spo_loss(logp, ref_logp, mask, rewards, rewards, beta=1.0, kind="cross_entropy")


def test_log1mexp_is_exact_at_both_ends():
    x = torch.tensor([-1e-12, -1e-3, -0.6931, -0.7, -5.0, -40.0, -800.0], dtype=torch.float64)
    expected = [math.log(-math.expm1(v)) if v > -1 else math.log1p(-math.exp(v)) for v in x]
    torch.testing.assert_close(log1mexp(x), torch.tensor(expected, dtype=torch.float64))


def test_advantage_is_huber_of_the_squared_error():
    logp, ref_logp, mask, rewards = ragged_batch()
    q0 = torch.full((8,), 0.3, dtype=torch.float64)
    given = (logp, ref_logp, mask, rewards, q0)
    wide = spo_loss(*given, beta=BETA, kind="advantage", huber_width=100.0)
    squared = spo_loss(*given, beta=BETA, kind="squared")
    torch.testing.assert_close(wide, squared / 2)
    narrow = spo_loss(*given, beta=BETA, kind="advantage", huber_width=0.01)
    assert narrow < wide


def test_only_the_group_value_needs_groups_and_only_the_others_reference_samples():
    def needs(**options):
        return SPO(SPOConfig(**options), 1.0).needs

    assert needs(q0="monte_carlo").initial_value == "monte_carlo"
    assert not needs(q0="monte_carlo").groups
    assert needs(q0="group").groups
    assert needs(q0="group").initial_value == "none"
    for q0 in ("monte_carlo", "group", "online"):
        assert needs(q0=q0).critic == "none"
        assert needs(q0=q0).reference
        assert not needs(q0=q0).behaviour


def test_loss_of_the_class_is_the_function_and_its_metrics_are_the_batchs():
    logp, ref_logp, mask, rewards = ragged_batch(torch.float32)
    batch = prepared(logp, ref_logp, mask, rewards, group_size=4, q0="group")
    spo = SPO(SPOConfig(beta=BETA, q0="group"), reward_high=1.0)
    loss, metrics = spo.loss(PolicyOutput(logp=logp, entropy=logp), batch)
    expected = spo_loss(
        logp,
        ref_logp,
        mask,
        rewards,
        batch.q0,
        beta=BETA,
        kind="cross_entropy",
        reward_high=1.0,
        slope_bound=spo.config.slope_bound,
    )
    assert loss.item() == expected.item()
    assert metrics["spo/q_initial"].item() == pytest.approx(batch.q0.mean().item())


@pytest.mark.parametrize(
    "bad", [{"beta": 0}, {"loss": "l2"}, {"q0": "none"}, {"q0_samples": 0}, {"slope_bound": 0.5}]
)
def test_bad_options_are_named(bad):
    with pytest.raises(ValueError, match=f"algo.{next(iter(bad))}"):
        typed(SPOConfig, bad, "algo")
