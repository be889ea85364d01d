"""Snapshots hold the weights of their time, on any ranks; copies move when they should."""

import copy

import pytest
import torch
import torch.multiprocessing as mp

import algorithms
from experiments.errors import UserError
from experiments.learner.batching import pack
from experiments.learner.learner import Learner
from experiments.policy import lora
from experiments.policy.lora import adapted
from experiments.policy.policy import Policy, copy_weights, frozen_copy
from experiments.policy.snapshots import MovingAverage, PlainWeights, ShardedSnapshot
from experiments.run_dir.ledger import Ledger
from tests.compose import model_config, train_config
from tests.experiments.learner.learning import GROUP, REWARDS, learner_of, samples_from
from tests.experiments.runtime.test_torchrun import free_port, joined


def drifted(policy):
    """Other weights, the same on every rank."""
    torch.manual_seed(policy.version)
    with torch.no_grad():
        for tensor in policy.own_tensors():
            new = torch.randn(tensor.shape, dtype=tensor.dtype) / 10
            if hasattr(tensor, "to_local"):
                new = torch.distributed.tensor.distribute_tensor(
                    new, tensor.device_mesh, tensor.placements, src_data_rank=None
                )
            tensor.copy_(new)
    policy.version += 1


def taken(held, like):
    """The plain weights that an engine is given."""
    copy_weights(held.whole(), into=like)
    return [parameter.clone() for parameter in like.model.parameters()], like.version


def bytes_of(held):
    return sum(shard.untyped_storage().nbytes() for shard in held._local)


def wait(rank, size, port, model, own, folder):
    ranks = joined(rank, size, port)
    engine = frozen_copy(Policy(model))
    ranks.shard(own)
    held = ShardedSnapshot.of(own)
    drifted(own)
    later = ShardedSnapshot.of(own)
    drifted(own)
    state = [one.state() for one in (held, later)]
    assert set(held.state(keep=False)) == {None}
    again = ShardedSnapshot(own, state[1], later.version)
    found = [taken(one, engine) for one in (held, later, again)]
    torch.save((found, state, bytes_of(held), bytes_of(again)), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("adapter", [False, True], ids=["all weights", "an adapter"])
def test_sharded_snapshots_are_the_weights_of_their_time(adapter, tiny, tmp_path):
    size = 2
    own = Policy(copy.deepcopy(tiny))
    if adapter:
        own = adapted(own, model_config(adapter="lora", adapter_rank=3), seed=0)
    given = (size, free_port(), tiny, copy.deepcopy(own), tmp_path)
    mp.start_processes(wait, given, nprocs=size, start_method="fork")
    engine, expected_of = frozen_copy(Policy(tiny)), []
    for _ in range(2):
        held = PlainWeights.of(own)
        drifted(own)
        expected_of.append((taken(held, engine), [tensor.clone() for tensor in held.state()]))
    (first, one), (second, other) = expected_of
    whole = sum(tensor.nbytes for tensor in one)
    total = 0
    for rank in range(size):
        found, state, size_held, size_known = torch.load(tmp_path / f"{rank}.pt")
        for (weights, version), expected in zip(found, (first, second, second), strict=True):
            assert version == expected[1]
            for mine, theirs in zip(weights, expected[0], strict=True):
                torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
        for tensors, expected in zip(state, (one, other), strict=True):
            for mine, theirs in zip(tensors, expected, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
        assert size_held == size_known
        total += size_held
    assert total == whole  # each tensor once, whatever the number of ranks


def equal(one, other):
    return all(map(torch.equal, one.own_tensors(), other.own_tensors()))


def test_rto_reads_the_weights_of_another_folder(tiny, tmp_path):
    other = Policy(copy.deepcopy(tiny))
    drifted(other)
    other.model.save_pretrained(tmp_path)
    learner = learner_of(tiny, algorithms.make("rto", dpo_model=str(tmp_path)))
    held = learner.modules.past.policies["dpo"]
    assert equal(held, other) and not equal(held, learner.policy)
    (tmp_path / "model.safetensors").unlink()
    for folder, told in ((tmp_path, "not weights"), (tmp_path / "none", "no such folder")):
        with pytest.raises(UserError, match=f"algo.dpo_model=.*: {told}"):
            learner_of(tiny, algorithms.make("rto", dpo_model=str(folder)))


def updated(learner, samples, batches, monkeypatch):
    """Update → the learner's policy before each batch, and each batch as it is prepared."""
    prepare, starts, prepared = learner.algorithm.prepare, [], []
    spy = lambda batch: prepared.append(batch) or prepare(batch)  # noqa: E731
    monkeypatch.setattr(learner.algorithm, "prepare", spy)
    for _ in range(batches):
        starts.append(copy.deepcopy(learner.policy))
        learner.update(samples, GROUP, None)
    tokens = pack(samples, 0, learner.model.device)
    return [learner.modules.logp(policy, tokens) for policy in starts], prepared


def moving(tiny, adapter, every, **options):
    """A learner of SPO whose reference moves after every `every` batches."""
    policy = Policy(copy.deepcopy(tiny))
    if adapter:
        policy = lora.adapted(policy, model_config(adapter="lora", adapter_rank=4), seed=0)
    config = train_config(warmup_steps=0, reference_every=every)
    made = algorithms.make("spo", learning_rate=1e-3, q0="group_soft")
    return Learner(policy, 0, made, config, 10, Ledger(), **options)


def test_each_batch_gets_log_probs_of_its_start_the_batch_before_and_the_reference(
    tiny, monkeypatch
):
    made = algorithms.make("remix", base_from=0, reincarnate_at=2)
    learner = learner_of(tiny, made, epochs=2)
    logp, prepared = updated(learner, samples_from(tiny, REWARDS), 4, monkeypatch)
    for row, (base, before) in enumerate([(0, 0), (0, 0), (2, 1), (2, 2)]):
        wanted = {"start_logp": logp[row], "ref_logp": logp[base], "earlier_logp": logp[before]}
        for name, value in wanted.items():
            assert torch.equal(getattr(prepared[row], name), value), (row, name)
    assert (logp[0] - logp[1]).abs().max() > 1e-4
    assert equal(learner.reference, Policy(tiny))  # against which evaluations measure the KL


def test_an_algorithm_without_a_kl_keeps_no_copy(tiny):
    learner = learner_of(tiny, algorithms.make("remix", base_from=0, kl_coef=0.0))
    learner.update(samples_from(tiny, REWARDS), GROUP, None)
    assert not learner.modules.past.policies and "earlier" not in learner.state_dict()


@pytest.mark.parametrize(("name", "options"), [("spo", {"q0": "group_soft"}), ("ppo", {})])
def test_a_moving_reference_is_the_policy_of_every_second_batch(name, options, tiny, monkeypatch):
    learner = learner_of(tiny, algorithms.make(name, **options), reference_every=2)
    assert learner.reference is None  # no second copy
    logp, prepared = updated(learner, samples_from(tiny, REWARDS), 5, monkeypatch)
    batches = [next(batch for batch in prepared if batch.batches == i) for i in range(5)]
    for row, moved in enumerate((0, 0, 2, 2, 4)):
        assert torch.equal(batches[row].ref_logp, logp[moved]), row


@pytest.mark.parametrize("adapter", [False, True])
def test_the_initial_policy_stays_beside_a_moving_reference(adapter, tiny):
    learner, samples = moving(tiny, adapter, 2, keep_reference=True), samples_from(tiny, REWARDS)
    tokens = pack(samples, 0, tiny.device)
    before = learner.ref_logp(tokens)
    kls = [learner.update(samples, GROUP, None)["kl_ref"] for _ in range(4)]
    assert all(kls[i] == pytest.approx(0, abs=1e-6) for i in (0, 2))
    assert all(kls[i] > 1e-4 for i in (1, 3))
    assert torch.equal(learner.ref_logp(tokens), before)


@pytest.mark.parametrize("case", ["remix", "ppo_ewma", "moving", "moving adapter"])
def test_earlier_weights_are_restored(case, tiny):
    def make():
        if case.startswith("moving"):
            return moving(tiny, "adapter" in case, 2)
        options = {"remix": {"base_from": 0, "reincarnate_at": 1}, "ppo_ewma": {"decay": 0.5}}
        return learner_of(tiny, algorithms.make(case, **options[case]))

    samples, learner, again = samples_from(tiny, REWARDS), make(), make()
    for _ in range(3):
        learner.update(samples, GROUP, None)
    again.load_state_dict(copy.deepcopy(learner.state_dict()))
    metrics = [each.update(samples, GROUP, None) for each in (learner, again)]
    assert metrics[0] == pytest.approx(metrics[1], nan_ok=True, abs=0, rel=0)
    assert equal(again.policy, learner.policy)
    held = [each.modules.past.policies for each in (learner, again)]
    assert held[0] and all(equal(held[0][name], held[1][name]) for name in held[0])


def average_of(model):
    copied = Policy(copy.deepcopy(model).requires_grad_(False))
    return copied, MovingAverage(copied, Policy(model))


def test_the_average_is_the_mean_of_all_steps_with_falling_weights():
    model, values = torch.nn.Linear(1, 1, bias=False), [0.5, 1.0, 3.0, -2.0]
    torch.nn.init.constant_(model.weight, values[0])
    copied, average = average_of(model)
    for value in values[1:]:
        torch.nn.init.constant_(model.weight, value)
        average.follow(Policy(model), 0.5)
    weights = [0.125, 0.25, 0.5, 1.0]
    mean = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    assert copied.model.weight.item() == pytest.approx(mean)


def test_small_steps_of_bfloat16_weights_are_not_lost():
    model = torch.nn.Linear(1, 1, bias=False).bfloat16()
    torch.nn.init.constant_(model.weight, 1.0)
    copied, average = average_of(model)
    torch.nn.init.constant_(model.weight, 1.0 + 2**-7)  # the next number that bfloat16 has
    for _ in range(40):
        average.follow(Policy(model), 0.9)
    assert copied.model.weight.item() == model.weight.item()


def test_each_step_gets_the_averages_log_probs(tiny, monkeypatch):
    learner = learner_of(tiny, algorithms.make("ppo_ewma", decay=0.5), minibatches=3)
    given, loss = [], learner.algorithm.loss

    def spy(policy, batch):
        given.append((policy.logp.detach() - batch.earlier_logp).masked_fill(~batch.mask, 0.0))
        return loss(policy, batch)

    monkeypatch.setattr(learner.algorithm, "loss", spy)
    learner.update(samples_from(tiny, REWARDS), GROUP, None)
    assert given[0].abs().max() < 1e-5 and given[1].abs().max() > 1e-4
