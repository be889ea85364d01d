"""Snapshots of a policy's weights for batches to come (`train.lag`); checkpoints hold them too.

Pending snapshots are whole in host memory, or one rank's shards. A learner on N ranks with an
engine each would otherwise hold the weights N times for every batch of lag. Of an adapted policy a
snapshot holds the adapter, also in shards, or unsharded on its device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from experiments.policy.fsdp import as_shard, whole
from experiments.policy.lora import with_own_adapter
from experiments.policy.policy import Policy, WeightSource


@dataclass(frozen=True)
class PlainWeights:
    """Plain weights without a model, in the order of its parameters."""

    tensors: list[Tensor]
    version: int
    adapter: list[Tensor] | None = None  # the adapter's tensors that are part of the weights

    def plain_weights(self) -> Iterator[Tensor]:
        return iter(self.tensors)

    def own_tensors(self) -> list[Tensor]:
        return self.tensors if self.adapter is None else self.adapter


def snapshot(policy: Policy) -> WeightSource:
    """Return a copy for `copy_weights`: the weights in host memory, or the adapter alone.

    Of a sharded adapter it holds the plain weights too: they are used without the base.
    """
    if policy.adapter is None:
        return PlainWeights([_to_host(w) for w in policy.plain_weights()], policy.version)
    if not policy.sharded:
        return with_own_adapter(policy)
    adapter = [_to_host(whole(part.detach())) for part in policy.own_tensors()]
    return _with_sharded_base(policy, adapter, policy.version)


def from_tensors(policy: Policy, tensors: Sequence[Tensor], version: int) -> WeightSource:
    """Return a snapshot of `policy` with these `own_tensors`."""
    if policy.adapter is None:
        return PlainWeights(list(tensors), version)
    if policy.sharded:
        return _with_sharded_base(policy, tensors, version)
    restored = with_own_adapter(policy)
    with torch.no_grad():
        for own, new in zip(restored.own_tensors(), tensors, strict=True):
            own.copy_(new)
    restored.version = version
    return restored


def _with_sharded_base(policy: Policy, adapter: Sequence[Tensor], version: int) -> PlainWeights:
    """Return the snapshot of a sharded policy with this adapter; a collective of all ranks."""
    tensors = [_to_host(weight) for _, weight in policy.named_weights(adapter=adapter)]
    return PlainWeights(tensors, version, list(adapter))


def _to_host(tensor: Tensor) -> Tensor:
    return tensor.to("cpu", copy=True)


class WeightSnapshot:
    """The weights of a policy at one version."""

    def __init__(self, weights: WeightSource) -> None:
        self._weights, self.version = weights, weights.version

    @classmethod
    def of(cls, policy: Policy) -> WeightSnapshot:
        """Copy the policy's present weights."""
        return cls(snapshot(policy))

    @classmethod
    def restore(cls, policy: Policy, tensors: Sequence[Tensor], version: int) -> WeightSnapshot:
        """Return a snapshot with these `tensors`, of a policy of the same shape."""
        return cls(from_tensors(policy, tensors, version))

    def whole(self) -> WeightSource:
        """Return the weights for `copy_weights`."""
        return self._weights

    def tensors(self, keep: bool = True) -> Sequence[Tensor | None]:
        """Return the tensors that `restore` takes."""
        return self._weights.own_tensors()


class ShardedSnapshot:
    """This rank's shards of a policy's weights at one version.

    `whole` and `tensors` are collectives of all ranks.
    """

    def __init__(self, policy: Policy, shards: Sequence[Tensor], version: int) -> None:
        self._policy, self.version = policy, version
        self._shards = [_HostShard.of(shard) for shard in shards]

    @classmethod
    def of(cls, policy: Policy) -> ShardedSnapshot:
        return cls(policy, policy.own_tensors(), policy.version)

    @classmethod
    def restore(cls, policy: Policy, tensors: Sequence[Tensor], version: int) -> ShardedSnapshot:
        pairs = zip(tensors, policy.own_tensors(), strict=True)
        return cls(policy, [as_shard(tensor, like) for tensor, like in pairs], version)

    def whole(self) -> WeightSource:
        full = [shard.whole().cpu() for shard in self._shards]
        return from_tensors(self._policy, full, self.version)

    def tensors(self, keep: bool = True) -> Sequence[Tensor | None]:
        """Return full tensors in host memory; on a rank without `keep`, None for each."""
        return [full.cpu() if keep else None for full in (s.whole() for s in self._shards)]


@dataclass(frozen=True)
class _HostShard:
    """A rank's part of a tensor, in host memory; `like` is a shard of the same shape."""

    local: Tensor
    like: DTensor

    @classmethod
    def of(cls, shard: Tensor) -> _HostShard:
        if not isinstance(shard, DTensor):
            raise TypeError("the weights are not sharded")
        return cls(shard.to_local().detach().to("cpu", copy=True), shard)

    def whole(self) -> Tensor:
        """Return the full tensor on every rank; a collective of all ranks."""
        like = self.like
        return whole(
            DTensor.from_local(
                self.local.to(like.device),
                like.device_mesh,
                like.placements,
                run_check=False,
                shape=like.shape,
                stride=like.stride(),
            )
        )
