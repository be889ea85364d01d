"""The moving average of the weights: what it holds, who is given it, and that it survives."""

import copy

import pytest
import torch

import algorithms
from experiments.config.composition import config_of
from experiments.errors import UserError
from experiments.policy.past_policies import MovingAverage
from experiments.policy.policy import Policy
from tests.experiments.learner.learning import GROUP, REWARDS, learner_of, samples_from


def average_of(policy):
    copied = Policy(copy.deepcopy(policy.model).requires_grad_(False))
    return copied, MovingAverage(copied, policy)


def test_it_is_the_mean_of_all_steps_with_falling_weights():
    model, seen = torch.nn.Linear(1, 1, bias=False), [0.5]
    policy = Policy(model)
    with torch.no_grad():
        model.weight.fill_(seen[0])
    copied, average = average_of(policy)
    for value in (1.0, 3.0, -2.0):
        with torch.no_grad():
            model.weight.fill_(value)
        seen.append(value)
        average.follow(policy, 0.5)
    weights = [0.125, 0.25, 0.5, 1.0]
    mean = sum(w * v for w, v in zip(weights, seen, strict=True)) / sum(weights)
    assert copied.model.weight.item() == pytest.approx(mean)


def test_small_steps_of_bfloat16_weights_are_not_lost():
    model = torch.nn.Linear(1, 1, bias=False).bfloat16()
    policy = Policy(model)
    with torch.no_grad():
        model.weight.fill_(1.0)
        copied, average = average_of(policy)
        model.weight.fill_(1.0 + 2**-7)  # the next number that bfloat16 has
    for _ in range(40):
        average.follow(policy, 0.9)
    assert copied.model.weight.item() == model.weight.item()


def test_the_loss_is_given_the_averages_log_probs_before_each_step(tiny, monkeypatch):
    learner = learner_of(tiny, algorithms.make("ppo_ewma", decay=0.5), minibatches=3)
    given, loss = [], learner.algorithm.loss

    def spy(policy, batch):
        given.append((policy.logp.detach() - batch.earlier_logp).masked_fill(~batch.mask, 0.0))
        return loss(policy, batch)

    monkeypatch.setattr(learner.algorithm, "loss", spy)
    start = copy.deepcopy(learner.model)
    learner.update(samples_from(tiny, REWARDS), GROUP, None)
    assert given[0].abs().max() < 1e-5
    assert given[1].abs().max() > 1e-4
    triples = zip(
        learner.modules.past.policies["average"].model.parameters(),
        start.parameters(),
        learner.model.parameters(),
        strict=True,
    )
    assert any(not torch.equal(a, s) and not torch.equal(a, p) for a, s, p in triples)
    again = learner_of(tiny, algorithms.make("ppo_ewma", decay=0.5))
    again.load_state_dict(copy.deepcopy(learner.state_dict()))
    averages = [each.modules.past.averages["average"] for each in (again, learner)]
    assert averages[0].weight == averages[1].weight == 1.875
    pairs = zip(
        again.modules.past.policies["average"].model.parameters(),
        learner.modules.past.policies["average"].model.parameters(),
        strict=True,
    )
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_critics_first_batches_leave_the_policy_as_it_is(tiny):
    for critic in ("separate", "shared"):
        learner = learner_of(tiny, algorithms.make("vapo", critic_warmup=1, critic=critic))
        samples = samples_from(tiny, REWARDS)
        head = learner.modules.value_head or learner.modules.critic.head
        learner.update(samples, GROUP, None)
        pairs = list(zip(learner.model.parameters(), tiny.parameters(), strict=True))
        assert all(torch.equal(a, b) for a, b in pairs)
        assert head.weight.any()
        learner.update(samples, GROUP, None)
        assert any(not torch.equal(a, b) for a, b in pairs)


def test_a_correction_beside_its_own_is_refused():
    with pytest.raises(UserError, match="algo=ppo_ewma: it has no ratio"):
        config_of(["algo=ppo_ewma", "train.correction=decoupled"])
