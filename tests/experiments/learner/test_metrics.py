"""Whose responses the gradient comes from, and what critics and groups explain."""

import math
from dataclasses import replace

import pytest
import torch

import algorithms
from algorithms.base import Batch
from algorithms.spo import SPO
from experiments.learner.metrics import (
    batch_metrics,
    effective_share,
    explained_variance,
    group_metrics,
)
from experiments.sample import Origin
from tests.compose import options_of
from tests.experiments.learner.learning import ALGORITHMS, GROUP, learner_of, samples_from

MIXED = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0]
NAMES = ("weight/accepted", "weight/rejected", "weight/others")
CUTS = ({}, {"micro_batch": 5}, {"micro_batch": 1}, {"micro_tokens": 30})


def with_programs(samples, rows):
    """These rows as programs of the data set."""
    return [
        replace(sample, logps=None, origin=Origin("dataset")) if row in rows else sample
        for row, sample in enumerate(samples)
    ]


def shares(model, algorithm, samples, **options):
    metrics = learner_of(model, algorithm, **options).update(samples, GROUP, None)
    return [metrics[name] for name in NAMES]


@pytest.mark.parametrize("name", ["spo", "ppo-shared", "grpo"])
def test_shares_of_the_gradient_do_not_depend_on_micro_batches(tiny, name):
    samples = samples_from(tiny, MIXED)
    whole, *parts = (shares(tiny, ALGORITHMS[name], samples, **cut) for cut in CUTS)
    assert sum(whole) == pytest.approx(1)
    assert 0 < whole[0] < 1
    for part in parts:
        assert part == pytest.approx(whole, abs=1e-5)


def test_spos_squared_loss_by_hand(tiny):
    """At the start h = 0: slopes are 2 β (V − r) with V the group's mean, once for each token."""
    samples = with_programs(samples_from(tiny, MIXED), {1, 3})
    expected = dict.fromkeys(NAMES, 0.0)
    for row, sample in enumerate(samples):
        group = MIXED[row // GROUP * GROUP :][:GROUP]
        slope = abs(sum(group) / GROUP - sample.reward)
        which = NAMES[2] if sample.offline else NAMES[0] if sample.reward else NAMES[1]
        expected[which] += slope * len(sample.tokens)
    total = sum(expected.values())
    assert min(expected.values()) > 0
    found = shares(tiny, SPO(options_of("spo", q0="group", loss="squared"), 1.0), samples)
    assert found == pytest.approx([value / total for value in expected.values()], abs=1e-5)


def test_without_any_gradient_there_is_no_share(tiny):
    drgrpo = algorithms.make("dr_grpo")
    metrics = learner_of(tiny, drgrpo).update(samples_from(tiny, [0.0] * 12), GROUP, None)
    assert all(math.isnan(metrics[name]) for name in NAMES)
    assert metrics["grad_norm"] == 0


def test_a_step_without_gradient_leaves_the_batchs_shares():
    step = dict.fromkeys(NAMES, 0.0)
    metrics = batch_metrics([step, {**step, NAMES[0]: 3.0, NAMES[1]: 1.0}])
    assert [metrics[name] for name in NAMES] == [0.75, 0.25, 0]


def test_explained_variance_by_hand():
    actual = torch.tensor([0.0, 0.0, 1.0, 1.0])
    assert explained_variance(actual, actual) == 1
    assert explained_variance(torch.full((4,), 0.3), actual) == pytest.approx(0)
    assert explained_variance(torch.tensor([0.0, 0.5, 0.5, 1.0]), actual) == pytest.approx(0.5)
    assert explained_variance(1 - actual, actual) == pytest.approx(-3)
    assert math.isnan(explained_variance(actual, torch.ones(4) / 3))


@pytest.mark.parametrize(
    "options", [pytest.param({}, marks=pytest.mark.slow), {"lam": 0.5}, {"critic": "shared"}]
)
def test_a_critics_explained_variance_is_of_the_whole_batch_before_the_step(tiny, options):
    """Also with λ < 1, whose returns hold the values themselves."""
    samples, found = samples_from(tiny, MIXED), []
    for cut in (*CUTS, {"epochs": 2, "minibatches": 3}):
        learner = learner_of(tiny, algorithms.make("ppo", kl_coef=0.0, **options), **cut)
        head = learner.modules.value_head or learner.modules.critic.head
        torch.nn.init.constant_(head.weight, 0.1)
        tokens, batch, _ = learner._assemble(samples, GROUP)
        learner.optimiser.zero_grad()
        values, rewards = batch.values[tokens.mask], batch.rewards.unsqueeze(-1)
        expected = explained_variance(values, rewards.expand_as(tokens.mask)[tokens.mask])
        metrics = learner.update(samples, GROUP, None)
        assert metrics["value/explained_variance"] == pytest.approx(expected, abs=1e-4)
        found.append(metrics["value/explained_variance"])
    assert found == pytest.approx([found[0]] * len(found), abs=1e-4)


def test_the_effective_share_of_weights_by_hand():
    weights = torch.tensor([1.0, 2.0, 3.0])
    assert effective_share(weights.log()) == pytest.approx(36 / (3 * 14))
    assert effective_share(weights.log() + 2000) == pytest.approx(36 / (3 * 14), abs=1e-3)
    assert effective_share(torch.tensor([0.0, math.nan, 0.0])) == 1
    assert effective_share(torch.tensor([-900.0, 900.0])) == 0.5
    assert math.isnan(effective_share(torch.tensor([math.nan])))


@pytest.mark.parametrize("cut", CUTS)
def test_stale_responses_are_worth_less_than_fresh_ones(tiny, cut):
    """π/μ = e^−0.1 on each token of the first group; a program of the data set has no μ."""
    fresh = with_programs(samples_from(tiny, MIXED), {5})
    learner = learner_of(tiny, ALGORITHMS["grpo"], **cut)
    assert learner.update(fresh, GROUP, None)["ess_responses"] == pytest.approx(1, abs=1e-6)
    stale = [
        replace(s, logps=tuple(logp + 0.1 for logp in s.logps)) if row < GROUP else s
        for row, s in enumerate(fresh)
    ]
    found = learner_of(tiny, ALGORITHMS["grpo"], **cut).update(stale, GROUP, None)["ess_responses"]
    w = [math.exp(-0.1 * len(s.tokens)) for s in stale[:GROUP]] + [1.0] * (len(stale) - GROUP - 1)
    expected = sum(w) ** 2 / (len(w) * sum(x * x for x in w))
    assert found == pytest.approx(expected, abs=1e-5)
    assert expected < 0.99


def test_programs_that_are_learned_from_are_counted_by_their_verdict(tiny):
    """SFT draws rejected ones as well, and learns from none of them."""
    samples = with_programs(samples_from(tiny, MIXED), range(12))
    for name, epochs, counts in (("sft", 1, (6, 0)), ("spo", 2, (12, 12))):
        algorithm = algorithms.make("sft") if name == "sft" else ALGORITHMS[name]
        learner = learner_of(tiny, algorithm, epochs=epochs)
        learner.update(samples, GROUP, None)
        found = learner.ledger.counts
        assert (found.offline_accepted, found.offline_rejected) == counts


def groups(rewards, online=None, size=4):
    rewards = torch.tensor(rewards)
    every = torch.ones(len(rewards), dtype=torch.bool)
    online = every if online is None else torch.tensor(online)
    return Batch(every.unsqueeze(-1), rewards, every, online, size)


def test_what_the_rest_of_the_group_explains():
    name = "value/group_mean_explained"
    assert group_metrics(groups([1.0] * 4 + [0.0] * 4))[name] == 1
    # with all groups alike the others' mean only adds noise: r − (1 − r)/3 − …, 16/9 of Var(r)
    assert group_metrics(groups([1.0, 1.0, 0.0, 0.0] * 2))[name] == pytest.approx(1 - 16 / 9)
    assert math.isnan(group_metrics(groups([1.0] * 8))[name])
    assert group_metrics(groups([1.0, 0.0], size=1)) == {}
    # the data set's programs predict nothing, and a response alone has nothing to predict it
    programs = [True, True, False, False, True, True, True, False]
    own = group_metrics(groups([0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0], programs))[name]
    assert own == 1
    alone = [True, False, False, False, True, True, True, True]
    assert math.isnan(group_metrics(groups([1.0] + [0.0] * 7, alone))[name])
