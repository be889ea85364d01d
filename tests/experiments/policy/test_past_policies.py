"""Past policies: which batches get them, when they are renewed, and that they are restored."""

import copy

import pytest
import torch

import algorithms
from experiments.config.composition import config_of
from experiments.errors import UserError
from experiments.learner.batching import pack
from experiments.learner.learner import Learner
from experiments.policy import lora
from experiments.policy.policy import Policy
from experiments.run_dir.ledger import Ledger
from tests.compose import model_config, train_config
from tests.experiments.learner.learning import GROUP, REWARDS, learner_of, samples_from


def remix(**options):
    return algorithms.make("remix", base_from=0, **options)


def equal(one, other):
    pairs = zip(one.own_tensors(), other.own_tensors(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.fixture
def given(monkeypatch):
    """What each batch says of earlier policies, in their order."""
    seen = []

    def watched(learner):
        prepare = learner.algorithm.prepare

        def spy(batch):
            seen.append(batch)
            return prepare(batch)

        monkeypatch.setattr(learner.algorithm, "prepare", spy)
        return learner, seen

    return watched


def test_each_batch_gets_log_probs_of_its_start_the_batch_before_and_the_reference(tiny, given):
    learner, seen = given(learner_of(tiny, remix(reincarnate_at=2), epochs=2))
    samples, starts = samples_from(tiny, REWARDS), []
    for _ in range(4):
        starts.append(copy.deepcopy(learner.policy))
        learner.update(samples, GROUP, None)
    tokens = pack(samples, 0, tiny.device)
    logp = [learner.modules.logp(policy, tokens) for policy in starts]
    assert [batch.batches for batch in seen] == [0, 1, 2, 3]
    for row, (base, before) in enumerate([(0, 0), (0, 0), (2, 1), (2, 2)]):
        batch = seen[row]
        wanted = {"start_logp": logp[row], "ref_logp": logp[base], "earlier_logp": logp[before]}
        for name, value in wanted.items():
            assert torch.equal(getattr(batch, name), value), (row, name)
    assert (logp[0] - logp[1]).abs().max() > 1e-4
    assert equal(learner.reference, Policy(tiny))  # against which evaluations measure the KL


def test_without_its_kl_nothing_is_held(tiny, given):
    learner, seen = given(learner_of(tiny, remix(kl_coef=0.0)))
    learner.update(samples_from(tiny, REWARDS), GROUP, None)
    assert not learner.modules.past.policies and "earlier" not in learner.state_dict()
    assert seen[0].ref_logp is seen[0].earlier_logp is None


def test_the_batch_before_is_not_asked_while_the_base_has_all_the_weight(tiny, given):
    learner, seen = given(learner_of(tiny, algorithms.make("remix", base_from=1)))
    samples, starts = samples_from(tiny, REWARDS), []
    for _ in range(2):
        starts.append(copy.deepcopy(learner.policy))
        learner.update(samples, GROUP, None)
    assert seen[0].earlier_logp is None
    wanted = learner.modules.logp(starts[0], pack(samples, 0, tiny.device))
    assert torch.equal(seen[1].earlier_logp, wanted)


def test_what_is_held_survives(tiny):
    learner, samples = learner_of(tiny, remix(reincarnate_at=1)), samples_from(tiny, REWARDS)
    for _ in range(2):
        learner.update(samples, GROUP, None)
    again = learner_of(tiny, remix(reincarnate_at=1))
    again.load_state_dict(copy.deepcopy(learner.state_dict()))
    for each in (learner, again):
        each.update(samples, GROUP, None)
    assert equal(again.policy, learner.policy)
    held = [each.modules.past.policies for each in (learner, again)]
    assert all(equal(held[0][name], held[1][name]) for name in ("precedent", "reference"))
    assert not equal(held[1]["precedent"], held[1]["reference"])


MOVING = {
    "spo": algorithms.make("spo"),
    "ppo": algorithms.make("ppo"),
    "grpo-two-steps": algorithms.make("grpo"),
}


@pytest.mark.parametrize("name", MOVING)
def test_a_reference_that_moves_is_the_policy_of_every_second_batch(name, tiny, given):
    steps = {"epochs": 2} if name == "grpo-two-steps" else {}
    learner, seen = given(learner_of(tiny, MOVING[name], reference_every=2, **steps))
    samples, starts = samples_from(tiny, REWARDS), []
    for _ in range(5):
        starts.append(copy.deepcopy(learner.policy))
        learner.update(samples, GROUP, None)
    tokens = pack(samples, 0, tiny.device)
    logp = [learner.modules.logp(policy, tokens) for policy in starts]
    batches = [next(batch for batch in seen if batch.batches == i) for i in range(5)]
    for row, moved in enumerate((0, 0, 2, 2, 4)):
        assert torch.equal(batches[row].ref_logp, logp[moved]), row
    assert (logp[2] - logp[4]).abs().max() > 1e-4


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_after_its_move_the_kl_is_0_on_responses_of_any_age(adapter, tiny):
    learner = moving(tiny, adapter, 2)
    samples = samples_from(tiny, REWARDS)  # of the initial policy, so older at each batch
    kls = [learner.update(samples, GROUP, None)["kl_ref"] for _ in range(6)]
    assert all(kls[i] == pytest.approx(0, abs=1e-6) for i in (0, 2, 4))
    assert all(kls[i] > 1e-4 for i in (1, 3, 5))


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_evaluations_still_measure_the_kl_to_the_initial_policy(adapter, tiny):
    learner = moving(tiny, adapter, 1, keep_reference=True)
    samples = samples_from(tiny, REWARDS)
    tokens = pack(samples, 0, tiny.device)
    before = learner.ref_logp(tokens)
    for _ in range(3):
        learner.update(samples, GROUP, None)
    assert torch.equal(learner.ref_logp(tokens), before)
    assert equal(learner.reference, Policy(tiny))


def test_a_reference_that_moves_is_no_second_copy(tiny):
    assert moving(tiny, "none", 1).reference is None


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_a_reference_between_two_moves_survives(adapter, tiny):
    learner, samples = moving(tiny, adapter, 2), samples_from(tiny, REWARDS)
    for _ in range(3):
        learner.update(samples, GROUP, None)
    again = moving(tiny, adapter, 2)
    again.load_state_dict(copy.deepcopy(learner.state_dict()))
    metrics = [each.update(samples, GROUP, None) for each in (learner, again)]
    assert metrics[0]["kl_ref"] == metrics[1]["kl_ref"] > 1e-4
    assert equal(again.policy, learner.policy)
    assert equal(*(each.modules.past.policies["reference"] for each in (again, learner)))


def moving(tiny, adapter, every, **options):
    """A learner of SPO whose reference moves after every `every` batches."""
    policy = Policy(copy.deepcopy(tiny))
    if adapter == "lora":
        policy = lora.adapted(policy, model_config(adapter="lora", adapter_rank=4), seed=0)
    config = train_config(warmup_steps=0, reference_every=every)
    algorithm = algorithms.make("spo", learning_rate=1e-3)
    return Learner(policy, 0, algorithm, config, 10, Ledger(), **options)


def test_a_correction_of_the_ratio_is_refused():
    with pytest.raises(UserError, match="algo=remix: it has no ratio"):
        config_of(["algo=remix", "train.correction=decoupled"])
