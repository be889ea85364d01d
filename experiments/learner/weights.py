"""Which weights a module holds: how many optimiser steps they have seen, wherever they are copied.

Engines know by it that a model's weights are others than those they hold, and every response says
by it which weights wrote it. What engines take are plain weights, whatever the learner's module is
made of: an adapter is added to its base out of place, in float32, and rounded once. Merging it in
place and taking it out again would change the base a little each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

LAYER = ".base_layer"  # peft's name for the layer under an adapter


def weights_version(model: nn.Module) -> int:
    """Optimiser steps that the module's weights have seen; see `weights_changed`."""
    return getattr(model, "_weights_version", 0)


def weights_changed(model: nn.Module) -> None:
    """To be called by whoever changes weights in place.

    Torch's own count of a tensor's changes is no substitute: fused optimisers do not raise it.
    """
    weights_are(model, weights_version(model) + 1)


def weights_are(model: nn.Module, version: int) -> None:
    """Say which weights `model` holds, where they came from elsewhere."""
    model._weights_version = version


def plain_weights(model: nn.Module, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of each weight as a model without an adapter has them, one at a time."""
    from experiments.learner.shards import whole

    layers = dict(model.named_modules(remove_duplicate=False))
    for name, parameter in model.named_parameters(remove_duplicate=remove_duplicate):
        if ".lora_" in name:
            continue
        owner, _, kind = name.rpartition(".")
        value = whole(parameter.detach())
        if owner.endswith(LAYER):
            owner = owner.removesuffix(LAYER)
            name = f"{owner}.{kind}"
            if kind == "weight":
                value = _with_adapter(value, layers[owner])
        yield name, value


def _with_adapter(weight: Tensor, layer: nn.Module) -> Tensor:
    """W + scale·BA of a linear layer, a tensor of its own."""
    (name,) = layer.active_adapters
    from experiments.learner.shards import whole

    a, b = (whole(part[name].weight.detach()).float() for part in (layer.lora_A, layer.lora_B))
    return (weight.float() + layer.scaling[name] * (b @ a)).to(weight.dtype)


def copy_weights(source: nn.Module, into: nn.Module) -> None:
    """The weights of `source` and their version; both list them in the same order.

    Plain weights, unless `into` has an adapter too: then the adapter's, the base being the same.
    """
    import torch

    own, new = tensors_of(into), (weight for _, weight in plain_weights(source))
    if own[0] is not next(into.parameters()):
        new = iter(tensors_of(source))
    with torch.no_grad():
        for mine, value in zip(own, new, strict=True):
            mine.copy_(value)
    weights_are(into, weights_version(source))


def snapshot(model: nn.Module) -> nn.Module:
    """A copy for `copy_weights` to take later: the weights in host memory, or the adapter alone."""
    from experiments.learner.adapters import is_adapted, with_own_adapter
    from experiments.learner.shards import is_sharded

    if is_adapted(model) and not is_sharded(model):
        return with_own_adapter(model)
    copies = [weight.to("cpu", copy=True) for _, weight in plain_weights(model)]
    return as_module(copies, weights_version(model))


def tensors_of(held: nn.Module) -> list[Tensor]:
    """What tells one snapshot of a model from another."""
    named = held.named_parameters()
    adapters = [parameter for name, parameter in named if ".lora_" in name]
    return adapters or list(held.parameters())


def from_tensors(model: nn.Module, weights: Sequence[Tensor], version: int) -> nn.Module:
    """The snapshot of `model` whose `tensors_of` these are."""
    import torch

    from experiments.learner.adapters import is_adapted
    from experiments.learner.shards import is_sharded

    if not is_adapted(model) or is_sharded(model):
        return as_module(weights, version)
    held = snapshot(model)
    with torch.no_grad():
        for own, new in zip(tensors_of(held), weights, strict=True):
            own.copy_(new)
    weights_are(held, version)
    return held


def as_module(weights: Iterable[Tensor], version: int) -> nn.Module:
    """Weights for `copy_weights` to take; the tensors are not copied."""
    from torch import nn

    module = nn.ParameterList(nn.Parameter(each, requires_grad=False) for each in weights)
    weights_are(module, version)
    return module
