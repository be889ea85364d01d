"""Snapshots of a policy's weights for batches to come (`train.lag`); checkpoints hold them too.

Pending snapshots are in host memory, whole or one rank's shards. A learner on N ranks with an
engine each would otherwise hold the weights N times for every batch of lag. Of an adapted policy a
snapshot holds the adapter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.distributed.tensor import DTensor

from experiments.policy.fsdp import as_shard, whole
from experiments.policy.policy import Policy


@dataclass(frozen=True)
class PlainWeights:
    """Weights without a model (see `WeightSource`), in the order of its parameters."""

    tensors: Sequence[Tensor]
    version: int
    adapted: Policy | None = None  # the policy whose adapter the tensors are

    def plain_weights(self) -> Iterator[Tensor]:
        if self.adapted is None:
            return iter(self.tensors)
        return (weight for _, weight in self.adapted.named_weights(adapter=self.tensors))

    def own_tensors(self) -> Sequence[Tensor]:
        return self.tensors


@dataclass(frozen=True)
class GatheredAdapter(PlainWeights):
    """An adapter and the weights that it makes of a sharded base, which are used without it."""

    plain: Sequence[Tensor] = ()

    def plain_weights(self) -> Iterator[Tensor]:
        return iter(self.plain)


def weights_from(policy: Policy, tensors: Sequence[Tensor], version: int) -> PlainWeights:
    """Return the weights of a policy with these `own_tensors`, which are whole.

    A collective of all ranks if the policy is sharded.
    """
    if policy.adapter is None:
        return PlainWeights(tensors, version)
    if not policy.sharded:
        return PlainWeights(tensors, version, policy)
    plain = [_to_host(weight) for _, weight in policy.named_weights(adapter=tensors)]
    return GatheredAdapter(tensors, version, policy, plain)


class WeightSnapshot:
    """The weights of a policy at one version."""

    def __init__(self, policy: Policy, tensors: Sequence[Tensor], version: int) -> None:
        """`tensors`: whole `own_tensors` of a policy of the same shape."""
        self._weights, self.version = weights_from(policy, tensors, version), version

    @classmethod
    def of(cls, policy: Policy) -> WeightSnapshot:
        """Copy the policy's present weights."""
        tensors = [_to_host(whole(tensor.detach())) for tensor in policy.own_tensors()]
        return cls(policy, tensors, policy.version)

    def whole(self) -> PlainWeights:
        """Return the weights for `copy_weights`."""
        return self._weights

    def tensors(self, keep: bool = True) -> Sequence[Tensor | None]:
        """Return the tensors that a snapshot is made from."""
        return self._weights.tensors


class ShardedSnapshot:
    """This rank's shards of a policy's weights at one version.

    `whole` and `tensors` are collectives of all ranks.
    """

    def __init__(self, policy: Policy, tensors: Sequence[Tensor], version: int) -> None:
        """`tensors`: whole ones, or shards."""
        self._policy, self.version = policy, version
        self._like = [tensor for tensor in policy.own_tensors() if isinstance(tensor, DTensor)]
        pairs = zip(tensors, self._like, strict=True)
        shards = (t if isinstance(t, DTensor) else as_shard(t, like) for t, like in pairs)
        self._local = [_to_host(s.to_local()) for s in shards if isinstance(s, DTensor)]

    @classmethod
    def of(cls, policy: Policy) -> ShardedSnapshot:
        """Copy this rank's shards of the policy's present weights."""
        return cls(policy, policy.own_tensors(), policy.version)

    def whole(self) -> PlainWeights:
        return weights_from(self._policy, [full.cpu() for full in self._full()], self.version)

    def tensors(self, keep: bool = True) -> Sequence[Tensor | None]:
        """Return whole tensors in host memory; on a rank without `keep`, None for each."""
        return [full.cpu() if keep else None for full in self._full()]

    def _full(self) -> Iterator[Tensor]:
        for local, like in zip(self._local, self._like, strict=True):
            yield DTensor.from_local(
                local.to(like.device),
                like.device_mesh,
                like.placements,
                run_check=False,
                shape=like.shape,
                stride=like.stride(),
            ).full_tensor()


def _to_host(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
