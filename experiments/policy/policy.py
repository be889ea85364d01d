"""A policy: a causal language model together with what is known of its weights.

Engines sample from policies, the learner trains one, and the reference is another. The `version`
counts the optimiser steps that the weights have seen. Engines compare versions to tell whether they
hold the current weights, and every response records the version that generated it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel

    from experiments.config.schema import ModelConfig
    from experiments.policy.fsdp import GatheringRoot

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class WeightSource(Protocol):
    """Weights that an engine can take over: a policy, or a snapshot of one."""

    @property
    def version(self) -> int: ...

    def plain_weights(self) -> Iterator[Tensor]:
        """Yield the weights as a model without an adapter has them, in its parameters' order."""

    def own_tensors(self) -> list[Tensor]:
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
        from experiments.policy.weights import plain_weights

        return (weight for _, weight in plain_weights(self))

    def own_tensors(self) -> list[Tensor]:
        """Return the adapter's tensors, or all parameters; see `WeightSource`."""
        if self.adapter is None:
            return list(self.model.parameters())
        return [tensor for name, tensor in self.model.named_parameters() if ".lora_" in name]
