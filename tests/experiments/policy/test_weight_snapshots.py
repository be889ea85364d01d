"""Snapshots on several ranks: each holds its shards, together they are the whole."""

import copy

import pytest
import torch
import torch.multiprocessing as mp

from experiments.policy.loading import frozen_copy
from experiments.policy.lora import adapted
from experiments.policy.policy import Policy, copy_weights
from experiments.policy.weight_snapshots import ShardedSnapshot, WeightSnapshot
from tests.compose import model_config
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
    state = [one.tensors() for one in (held, later)]
    assert set(held.tensors(keep=False)) == {None}
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
        held = WeightSnapshot.of(own)
        drifted(own)
        expected_of.append((taken(held, engine), [tensor.clone() for tensor in held.tensors()]))
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
