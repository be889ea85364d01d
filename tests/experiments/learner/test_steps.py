"""Several optimiser steps from a batch: in passes and in parts."""

import copy

import pytest
import torch

from algorithms.ppo import PPO
from tests.compose import options_of
from tests.experiments.learner.learning import ALGORITHMS, GROUP, REWARDS, learner_of, samples_from


def watch(learner, monkeypatch):
    """What the loss is given, one batch for each optimiser step."""
    given, loss = [], learner.algorithm.loss
    spied = copy.copy(learner.algorithm)
    monkeypatch.setattr(learner, "algorithm", spied)
    monkeypatch.setattr(
        spied, "loss", lambda output, batch: (given.append(batch), loss(output, batch))[1]
    )
    return given


@pytest.mark.parametrize("name", ["grpo", "grpo-drop", "spo"])
def test_a_second_pass_is_the_same_batch_again(tiny, name):
    """Where no old values are kept, also with a soft value that is of the present policy."""
    samples = samples_from(tiny, REWARDS)
    twice, passes = learner_of(tiny, ALGORITHMS[name]), learner_of(tiny, ALGORITHMS[name], epochs=2)
    for _ in range(2):
        twice.update(samples, GROUP, None)
    metrics = passes.update(samples, GROUP, None)
    for one, other in zip(twice.model.parameters(), passes.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert (passes.batches, passes.policy.version) == (1, 2)
    once = learner_of(tiny, ALGORITHMS[name]).update(samples, GROUP, None)
    assert metrics["kept_share"] == once["kept_share"]


@pytest.mark.parametrize(("minibatches", "epochs"), [(4, 1), (4, 4)])
def test_ppos_old_policy_and_old_values_are_those_before_the_first_step(
    tiny, monkeypatch, minibatches, epochs
):
    """Each pass of each of several steps: 1707.06347, algorithm 1."""
    samples = [sample for _ in range(2) for sample in samples_from(tiny, REWARDS)][: 4 * GROUP]
    ppo = PPO(options_of("ppo", lam=0.95, learning_rate=3e-3), 1.0)
    fitted = torch.randn(tiny.config.hidden_size)  # a critic that knows something
    learners = [
        learner_of(tiny, ppo, minibatches=m, epochs=e) for m, e in [(1, 1), (minibatches, epochs)]
    ]
    for learner in learners:
        learner.modules.critic.head.weight.data.copy_(fitted)
    whole, parts = (watch(learner, monkeypatch) for learner in learners)
    for learner in learners:
        metrics = learner.update(samples, GROUP, None)
    assert len(parts) == minibatches * epochs == learner.policy.version
    assert metrics["clip_share"] > 0
    for name in ("behaviour_logp", "values", "advantages", "returns"):
        before = sorted(getattr(whole[0], name)[whole[0].mask].tolist())
        for first in range(0, len(parts), minibatches):
            epoch = parts[first : first + minibatches]
            used = sorted(x for part in epoch for x in getattr(part, name)[part.mask].tolist())
            assert used == pytest.approx(before, abs=1e-5), name


def test_a_step_takes_whole_groups_in_an_order_of_its_own(tiny, monkeypatch):
    samples = samples_from(tiny, REWARDS)
    orders = []
    for seed in (0, 0, 1, 2, 3):
        learner = learner_of(tiny, ALGORITHMS["grpo"], minibatches=2, epochs=3)
        learner.seed, taken = seed, []
        orders.append(taken)
        tokens, batch, _ = learner._assemble(samples, GROUP)
        for rows, part in learner._mini_batches(tokens, batch):
            assert len(rows) == len(part.mask)
            assert part.sequence_share == part.token_share == 1
            assert rows.view(-1, GROUP).diff(dim=1).eq(1).all()
            assert rows.view(-1, GROUP)[:, 0].remainder(GROUP).eq(0).all()
            taken.append(rows.tolist())
        for epoch in range(3):
            step = taken[2 * epoch : 2 * epoch + 2]
            assert [len(rows) for rows in step] == [8, 4]
            assert sorted(row for rows in step for row in rows) == list(range(12))
    assert orders[0] == orders[1]
    assert any(other != orders[0] for other in orders[2:])
    learner = learner_of(tiny, ALGORITHMS["grpo"], minibatches=9)
    learner.update(samples, GROUP, None)
    assert learner.policy.version == 3  # as many steps as there are groups
