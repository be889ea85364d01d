"""Weights that are to write some batches later: whole in the host's memory, or one rank's shards.

A learner on N ranks of which each has an engine would otherwise hold the weights N times for every
batch of `train.lag`. Of an adapted model it is the adapter, also in shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.distributed.tensor import DTensor

from experiments.learner.shards import as_shard, whole
from experiments.learner.weights import from_tensors, snapshot, tensors_of, weights_version

if TYPE_CHECKING:
    from torch import Tensor, nn


class Waiting:
    """The weights of `model` as they are now."""

    def __init__(self, model: nn.Module) -> None:
        self._held = snapshot(model)
        self.version = weights_version(model)

    @classmethod
    def known(cls, model: nn.Module, tensors: Sequence[Tensor], version: int) -> Waiting:
        """What said `tensors` of itself, for a model of the same shape."""
        found = cls.__new__(cls)
        found._held, found.version = from_tensors(model, tensors, version), version
        return found

    def whole(self) -> nn.Module:
        """For `copy_weights` to take."""
        return self._held

    def tensors(self, keep: bool = True) -> Sequence[Tensor | None]:
        """What tells them from other weights of the model; see `from_tensors`."""
        return tensors_of(self._held)


class WaitingShards(Waiting):
    """Of a sharded model: this rank's shards. All ranks have to ask for the whole of them."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self.version = model, weights_version(model)
        self._parts = [_Part.of(tensor) for tensor in tensors_of(model)]

    @classmethod
    def known(cls, model: nn.Module, tensors: Sequence[Tensor], version: int) -> WaitingShards:
        found = cls.__new__(cls)
        found._model, found.version = model, version
        pairs = zip(tensors, tensors_of(model), strict=True)
        found._parts = [_Part.of(as_shard(tensor, like)) for tensor, like in pairs]
        return found

    def whole(self) -> nn.Module:
        return from_tensors(self._model, self.tensors(), self.version)

    def tensors(self, keep: bool = True) -> Sequence[Tensor | None]:
        """`keep`: on a rank that only gives its shards, None for each."""
        return [found.cpu() if keep else None for found in (p.whole() for p in self._parts)]


@dataclass(frozen=True)
class _Part:
    """A rank's part of a tensor, in the host's memory; `like` is a shard of the same shape."""

    held: Tensor
    like: DTensor

    @classmethod
    def of(cls, shard: DTensor) -> _Part:
        return cls(shard.detach().to_local().to("cpu", copy=True), shard)

    def whole(self) -> Tensor:
        """On every rank; all have to ask."""
        like = self.like
        placed = (like.device_mesh, like.placements)
        local = self.held.to(like.device)
        shape = {"shape": like.shape, "stride": like.stride()}
        return whole(DTensor.from_local(local, *placed, run_check=False, **shape))
