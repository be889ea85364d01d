"""A policy: a causal language model with the version, the adapter and the layout of its weights.

Engines sample from policies, the learner trains one, and the reference is another. The `version`
counts the optimiser steps that the weights have seen. Engines compare versions to tell whether they
hold the current weights, and every response records the version that generated it.

Engines take plain weights, whatever the learner's model is made of. An adapter is added to its base
out of place, in float32, and rounded once. Merging it in place and taking it out again would change
the base a little each time.

Weights may be sharded over a learner's ranks (FSDP2, torch.distributed.fsdp.fully_shard). Each
decoder layer is a unit that gathers its weights while it computes. A critic's head is another, and
so is the rest of a module. Gradients are summed over the ranks, not averaged, because a loss's
contributions add up to the batch's. State and weights leave the learner as full tensors, so that
they can be loaded anywhere.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils import _pytree
from transformers import PreTrainedModel

from algorithms.base import PolicyOutput
from experiments.config.schema import ModelConfig

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Item = TypeVar("Item")
LAYER = ".base_layer"  # peft's name for the layer under an adapter


class WeightSource(Protocol):
    """Weights that an engine can take over: a policy, or a snapshot of one."""

    @property
    def version(self) -> int: ...

    def plain_weights(self) -> Iterator[Tensor]:
        """Yield the weights as a model without an adapter has them, in its parameters' order."""

    def own_tensors(self) -> Sequence[Tensor]:
        """Return the tensors that tell two sets of weights of one model apart: the adapter's, or
        all. They are not copied, and are the same for sharded and unsharded weights."""


@dataclass(frozen=True)
class Adapter:
    """The origin of a policy's LoRA adapter (`policy/lora.py`)."""

    base: Policy  # the same weights without the adapter, shared by all adapted policies of a run
    config: ModelConfig
    seed: int


@dataclass(eq=False)
class Policy:
    """A causal model with the version, the adapter and the layout of its weights."""

    model: PreTrainedModel
    version: int = 0  # optimiser steps that the weights have seen
    adapter: Adapter | None = None  # None: all weights are the model's own
    checkpoint_activations: bool = False  # its blocks keep only their inputs while it learns
    sharded: bool = False  # each rank holds a part of every weight
    root: GatheringRoot | None = None  # gathers the sharded weights outside the layers

    @property
    def device(self) -> torch.device:
        return self.model.device

    def run(
        self,
        function: Callable[Concatenate[Policy, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        """Return function(policy, …), with the weights gathered that no layer gathers itself.

        Embedding, backbone and head are called one by one, but FSDP gathers the weights outside
        the layers only in the forward pass of its root module.
        """
        if self.root is None:
            return function(self, *args, **kwargs)
        return self.root(function, self, *args, **kwargs)

    def with_model(self, model: PreTrainedModel) -> Policy:
        """Return an unsharded policy of a copied model, of the same version and adapter."""
        return replace(self, model=model, sharded=False, root=None)

    def plain_weights(self) -> Iterator[Tensor]:
        """Yield the weights as a model without an adapter has them; see `WeightSource`."""
        return (weight for _, weight in self.named_weights())

    def named_weights(
        self, remove_duplicate: bool = True, adapter: Sequence[Tensor] | None = None
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, tensor) of each weight as a model without an adapter has them.

        Of a sharded policy this is a collective of all ranks.
        `adapter`: other adapter tensors, in the order of `own_tensors`, for the policy's own.
        """
        layers = dict(self.model.named_modules(remove_duplicate=False))
        own = {name: p for name, p in self.model.named_parameters() if ".lora_" in name}
        tensors = dict(zip(own, own.values() if adapter is None else adapter, strict=True))
        for name, parameter in self.model.named_parameters(remove_duplicate=remove_duplicate):
            if ".lora_" in name:
                continue
            layer, _, kind = name.rpartition(".")
            value = whole(parameter.detach())
            if layer.endswith(LAYER):
                layer = layer.removesuffix(LAYER)
                name = f"{layer}.{kind}"
                if kind == "weight":
                    value = _with_adapter(value, layer, layers[layer], tensors)
            yield name, value

    def own_tensors(self) -> list[Tensor]:
        """Return the adapter's tensors, or all parameters; see `WeightSource`."""
        if self.adapter is None:
            return list(self.model.parameters())
        return [tensor for name, tensor in self.model.named_parameters() if ".lora_" in name]


def _with_adapter(weight: Tensor, name: str, layer: Any, tensors: Mapping[str, Tensor]) -> Tensor:
    """Return W + scale·BA of one of peft's linear layers, as a new tensor."""
    (adapter,) = layer.active_adapters
    parts = (tensors[f"{name}.lora_{part}.{adapter}.weight"].detach() for part in "AB")
    a, b = (whole(part).to(weight.device).float() for part in parts)
    return (weight.float() + layer.scaling[adapter] * (b @ a)).to(weight.dtype)


def copy_weights(source: WeightSource, into: Policy) -> None:
    """Copy the weights of `source` and their version; both list them in the same order.

    They are plain weights, or the adapter's where `into` has one over the same base.
    """
    weights = source.plain_weights() if into.adapter is None else source.own_tensors()
    with torch.no_grad():
        for own, new in zip(into.own_tensors(), weights, strict=True):
            own.copy_(new)
    into.version = source.version


def frozen_copy(policy: Policy, device: str | None = None) -> Policy:
    """Return a copy with frozen weights, on `device` or the policy's own."""
    device = device or str(policy.device)
    moved = {  # deepcopy's memo: it makes no copy on the model's own device
        id(p): nn.Parameter(p.detach().to(device, copy=True), requires_grad=False)
        for p in policy.model.parameters()
    }
    model = copy.deepcopy(policy.model, moved).to(device)  # type: ignore[arg-type]
    return policy.with_model(model.eval())


# Shards

# FSDP looks in a forward's result for the tensors whose gradients it has to wait for.
_pytree.register_pytree_node(
    PolicyOutput,
    lambda output: ([output.logp, output.entropy, output.values], None),
    lambda tensors, _: PolicyOutput(*tensors),
)


class GatheringRoot(nn.Module):
    """FSDP's root of a policy: it gathers the weights outside the layers around any function."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        return function(*args, **kwargs)


def shard_units(units: Sequence[nn.Module], mesh: DeviceMesh) -> None:
    """Keep this rank's part of each module's weights; inner modules come before outer ones."""
    precision = MixedPrecisionPolicy(reduce_dtype=torch.float32)  # where ranks' gradients add up
    for unit in units:
        sharded = fully_shard(unit, mesh=mesh, reshard_after_forward=True, mp_policy=precision)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # gloo cannot scale while it adds


def whole(tensor: Tensor) -> Tensor:
    """Return the full tensor on every rank; a collective of all ranks."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_tree(tree: Any, keep: bool = True) -> Any:
    """Return a state with its shards as full tensors in host memory; others are not copied.

    A collective of all ranks. A rank without `keep` contributes its shards and gets None.
    """
    if isinstance(tree, dict):
        return {key: whole_tree(value, keep) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(whole_tree(value, keep) for value in tree)
    if not isinstance(tree, DTensor):
        return tree
    full = tree.full_tensor()
    return full.cpu() if keep else None


def as_shard(tensor: Tensor, like: Tensor) -> Tensor:
    """Return this rank's part of a full tensor if `like` is a shard, else the tensor."""
    if not isinstance(like, DTensor):
        return tensor
    on_device = tensor.to(like.device)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)


# Ranks


class RankGroup(Protocol):
    """The ranks that share a learner's work; every method is called on all of them together.

    Defaults are those of a learner in one process, which shares nothing.
    """

    size: int = 1
    sharded: bool = False

    @property
    def is_rank_zero(self) -> bool:
        return True

    def shard(self, policy: Policy, critic: nn.Module | None = None) -> None:
        """Keep only this rank's shard of a policy's weights, and of the critic's around it.

        A policy that is sharded already stays as it is.
        """

    def shard_head(self, head: nn.Module) -> None:
        """Keep only this rank's shard of a value head's weights."""

    def engine_copy(self, policy: Policy) -> Policy:
        """Return a copy with whole weights for an engine, where engines need one."""
        return frozen_copy(policy)

    def share(self, items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
        """Yield this rank's items, and whether each counts.

        All ranks get equally many, so that all enter the same collectives. A rank with fewer
        repeats an item that does not count. There must be at least one item.
        """
        return ((item, True) for item in items)

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over the ranks."""
        return tensor

    def broadcast(self, value: Callable[[], Tensor]) -> Tensor:
        """Return on every rank what rank 0's `value` returns."""
        return value()


class SingleRank(RankGroup):
    """A learner in one process: its weights stay whole."""

    def shard(self, policy: Policy, critic: nn.Module | None = None) -> None:
        """Shard nothing."""

    def shard_head(self, head: nn.Module) -> None:
        """Shard nothing."""


SINGLE_RANK = SingleRank()
