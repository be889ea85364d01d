"""Weights that are to write some batches later: whole in the host's memory, or one rank's shards.

A learner on N ranks of which each has an engine would otherwise hold the weights N times for every
batch of `train.lag`. Of an adapted model it is the adapter, also in shards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from algorithms.base import Needs
from experiments.policy.fsdp import as_shard, whole
from experiments.policy.lora import trained
from experiments.policy.weights import from_tensors, snapshot, tensors_of, weights_version

if TYPE_CHECKING:
    from torch import Tensor, nn


class WeightSnapshot:
    """The weights of `model` as they are now."""

    def __init__(self, model: nn.Module) -> None:
        self._held = snapshot(model)
        self.version = weights_version(model)

    @classmethod
    def known(cls, model: nn.Module, tensors: Sequence[Tensor], version: int) -> WeightSnapshot:
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


class ShardedSnapshot(WeightSnapshot):
    """Of a sharded model: this rank's shards. All ranks have to ask for the whole of them."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self.version = model, weights_version(model)
        self._parts = [_Part.of(tensor) for tensor in tensors_of(model)]

    @classmethod
    def known(cls, model: nn.Module, tensors: Sequence[Tensor], version: int) -> ShardedSnapshot:
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


# The policy as it was earlier in the run, for losses that are held to it (ReMix).


class PastPolicies:
    """Copies of the weights, as many as are needed; they begin as the policy is at the start."""

    def __init__(self, copied: Callable[[], nn.Module], needs: Needs) -> None:
        """`copied` gives a copy of the policy as it is, sharded as it is."""
        self.needs = needs
        self.before = None if needs.precedent is None else copied()
        self.reincarnated = None if needs.reincarnation is None else copied()

    def reference(self, policy: nn.Module, batches: int) -> nn.Module | None:
        """Whose log-probs the next batch has for its reference's, `batches` after the start.

        None: still those of the run's own. To be asked before each batch.
        """
        since = self.needs.reincarnation
        if since is None or batches < since:
            return None
        if batches == since:
            _take(policy, self.reincarnated)
        return self.reincarnated

    def precedent(self, batches: int) -> nn.Module | None:
        """The policy before the last batch, where the next one needs it."""
        since = self.needs.precedent
        return None if since is None or batches < since else self.before

    def remember(self, policy: nn.Module) -> None:
        """To be called before the first step of each batch, once its precedent was asked."""
        if self.before is not None:
            _take(policy, self.before)

    def __bool__(self) -> bool:
        """Whether any is needed."""
        return bool(self.models())

    def state_dict(self) -> dict[str, Any]:
        """The tensors are its own, not copies."""
        return {name: tensors_of(held) for name, held in self.models().items()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        for name, held in self.models().items():
            for own, known in zip(tensors_of(held), state[name], strict=True):
                own.copy_(as_shard(known, own))

    def models(self) -> dict[str, nn.Module]:
        """Those that are needed, by name."""
        held = {"before": self.before, "reincarnated": self.reincarnated}
        return {name: model for name, model in held.items() if model is not None}


@torch.no_grad()
def _take(policy: nn.Module, into: nn.Module) -> None:
    """The policy's weights, or its adapter's; of shards each rank its own."""
    for own, new in zip(tensors_of(into), tensors_of(policy), strict=True):
        own.copy_(new)


# An exponentially weighted moving average of a policy's weights (PPO-EWMA's proximal policy).


class MovingAverage:
    """Starts at the policy's weights; after n steps step i has weight decay^(n − i), and the start
    that of a step 0 (as in the code of Hilton et al., 2110.00641).

    Kept in float32: a tenth of a small step is lost in bfloat16. `model` has it rounded.
    """

    def __init__(self, model: nn.Module, policy: nn.Module, decay: float) -> None:
        """`model`: a copy of the policy as it is, sharded as it is."""
        self.model = model
        self.decay, self.weight = decay, 1.0
        moving = {name for name, each in policy.named_parameters() if each.requires_grad}
        self.rounded = [each for name, each in model.named_parameters() if name in moving]
        self.held = [each.detach().float() for each in self.rounded]  # float32 is itself

    @torch.no_grad()
    def follow(self, policy: nn.Module) -> None:
        """To be called after each step of the policy."""
        self.weight = self.decay * self.weight + 1
        for held, rounded, new in zip(self.held, self.rounded, trained(policy), strict=True):
            held.lerp_(new.float(), 1 / self.weight)
            if rounded.dtype != held.dtype:
                rounded.copy_(held)

    def state_dict(self) -> dict[str, Any]:
        """The tensors are the average's own, not copies."""
        return {"held": self.held, "weight": self.weight}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        self.weight = state["weight"]
        for held, rounded, known in zip(self.held, self.rounded, state["held"], strict=True):
            held.copy_(as_shard(known, held))
            if rounded.dtype != held.dtype:
                rounded.copy_(held)
