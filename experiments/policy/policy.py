"""A policy: a causal language model with the version, the adapter and the layout of its weights.

Engines sample from policies, the learner trains one, and the reference is another. The `version`
counts the optimiser steps that the weights have seen. Engines compare versions to tell whether they
hold the current weights, and every response records the version that generated it.

Engines take plain weights, whatever the learner's model is made of. An adapter is added to its base
out of place, in float32, and rounded once. Merging it in place and taking it out again would change
the base a little each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from experiments.config.schema import ModelConfig
from experiments.policy.fsdp import GatheringRoot, whole

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
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
