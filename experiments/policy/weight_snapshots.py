"""Snapshots of the weights that will generate some batches later (`train.lag`).

They are whole in host memory, or one rank's shards. A learner on N ranks with an engine each would
otherwise hold the weights N times for every batch of lag. Of an adapted policy a snapshot holds the
adapter, also in shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.distributed.tensor import DTensor

from experiments.policy.fsdp import as_shard, whole
from experiments.policy.policy import Policy, WeightSource
from experiments.policy.weights import from_tensors, snapshot


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
        """Return the snapshot whose `tensors` these are, of a policy of the same shape."""
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
