"""What a step does not compute twice, and that its bits are those of computing it apart."""

import pytest
import torch

import algorithms
from algorithms.ppo import PPO
from algorithms.regressions import SquaredRegression
from algorithms.spo import SPO
from experiments.learner import batching
from tests.compose import options_of
from tests.experiments.learner.learning import GROUP, REWARDS, learner_of, samples_from

BY_GROUP = {
    "spo": SPO(options_of("spo", q0="group", loss="squared"), 1.0),
    "squared_regression": SquaredRegression(options_of("gvpo"), 1.0),
}
CRITICS = {
    name: algorithm
    for name in algorithms.names()
    if (algorithm := algorithms.make(name)).needs.critic_apart and not algorithm.needs.copies
} | {"ppo": PPO(options_of("ppo", lam=0.9), 1.0)}


def passes(learner, monkeypatch):
    """Forward passes of the model and of the critic, as they come: with gradient or without."""
    seen = []
    for name, module in (("policy", learner.model), ("critic", learner.modules.critic)):
        if module is not None:
            backbone = module.base_model if name == "policy" else module
            backbone.register_forward_hook(
                lambda *_, name=name: seen.append((name, torch.is_grad_enabled()))
            )
    return seen


def steps(learner, samples, count=2):
    rows = [learner.update(samples, GROUP, None) for _ in range(count)]
    trained = [p for group in learner.optimiser.param_groups for p in group["params"]]
    return rows, [p.detach().clone() for p in trained]


def same(one, other):
    assert one[0] == other[0]
    assert all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))


@pytest.mark.parametrize("options", [{}, {"minibatches": 2, "epochs": 2}, {"micro_batch": 4}])
@pytest.mark.parametrize("name", BY_GROUP)
def test_a_groups_value_needs_no_pass_of_its_own(tiny, name, options, monkeypatch):
    samples = samples_from(tiny, REWARDS)
    learner = learner_of(tiny, BY_GROUP[name], **options)
    seen = passes(learner, monkeypatch)
    found = steps(learner, samples)
    assert seen
    assert all(gradient for _, gradient in seen)
    apart = learner_of(tiny, BY_GROUP[name], **options)
    monkeypatch.setattr(batching, "can_prepare_in_step", lambda *_: False)
    same(found, steps(apart, samples))


@pytest.mark.parametrize("name", CRITICS)
def test_a_critic_learns_from_the_pass_that_tells_its_old_values(tiny, name, monkeypatch):
    samples = samples_from(tiny, REWARDS)
    learner = learner_of(tiny, CRITICS[name], micro_batch=4)
    seen = passes(learner, monkeypatch)
    found = steps(learner, samples)
    assert {way for way in seen if way[0] == "critic"} == {("critic", True)}
    assert ("policy", False) not in seen
    together = learner_of(tiny, CRITICS[name], micro_batch=4)
    together.critic_alone = False
    same(found, steps(together, samples))


WITH_CRITIC = [name for name in algorithms.names() if algorithms.make(name).needs.critic != "none"]


@pytest.mark.parametrize("name", WITH_CRITIC)
def test_groups_that_micro_batches_part_teach_what_whole_ones_do(tiny, name):
    samples = samples_from(tiny, REWARDS)
    algorithm = algorithms.make(name)
    parted, whole = (
        learner_of(tiny, algorithm, micro_batch=rows).update(samples, GROUP, None)
        for rows in (3, 64)
    )
    for key in ("loss", "grad_norm", "critic_grad_norm"):
        assert parted[key] == pytest.approx(whole[key], rel=1e-5)


def test_old_values_need_no_logits(tiny, monkeypatch):
    learner = learner_of(tiny, PPO(options_of("ppo", critic="shared"), 1.0))
    shapes = []
    learner.model.lm_head.register_forward_hook(lambda *_: shapes.append(torch.is_grad_enabled()))
    learner.update(samples_from(tiny, REWARDS), GROUP, None)
    assert shapes == [True]
