"""Which weights a module holds: how many optimiser steps they have seen, wherever they are copied.

Engines know by it that a model's weights are others than those they hold, and every response says
by it which weights wrote it. What engines take are plain weights, whatever the learner's module is
made of: an adapter is added to its base out of place, in float32, and rounded once. Merging it in
place and taking it out again would change the base a little each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def plain_weights(
    model: nn.Module, remove_duplicate: bool = True, adapter: Sequence[Tensor] | None = None
) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of each weight as a model without an adapter has them, one at a time.

    `adapter`: another's tensors, in the order of `tensors_of`, instead of the model's own.
    """
    from experiments.policy.fsdp import whole

    layers = dict(model.named_modules(remove_duplicate=False))
    own = {name: p for name, p in model.named_parameters() if ".lora_" in name}
    held = dict(zip(own, own.values() if adapter is None else adapter, strict=True))
    for name, parameter in model.named_parameters(remove_duplicate=remove_duplicate):
        if ".lora_" in name:
            continue
        owner, _, kind = name.rpartition(".")
        value = whole(parameter.detach())
        if owner.endswith(LAYER):
            owner = owner.removesuffix(LAYER)
            name = f"{owner}.{kind}"
            if kind == "weight":
                value = _with_adapter(value, owner, layers[owner], held)
        yield name, value


def _with_adapter(
    weight: Tensor, owner: str, layer: nn.Module, held: Mapping[str, Tensor]
) -> Tensor:
    """W + scale·BA of a linear layer, a tensor of its own."""
    (adapter,) = layer.active_adapters
    from experiments.policy.fsdp import whole

    parts = (held[f"{owner}.lora_{part}.{adapter}.weight"].detach() for part in "AB")
    a, b = (whole(part).to(weight.device).float() for part in parts)
    return (weight.float() + layer.scaling[adapter] * (b @ a)).to(weight.dtype)


def copy_weights(source: nn.Module, into: nn.Module) -> None:
    """The weights of `source` and their version; both list them in the same order.

    Plain weights, unless `into` has an adapter too: then the adapter's, the base being the same.
    """
    import torch

    own, new = tensors_of(into), (weight for _, weight in plain_weights(source))
    if own[0] is not next(into.parameters()):  # an adapter
        new = iter(tensors_of(source))
    with torch.no_grad():
        for mine, value in zip(own, new, strict=True):
            mine.copy_(value)
    weights_are(into, weights_version(source))


def snapshot(model: nn.Module) -> nn.Module:
    """A copy for `copy_weights` to take later: the weights in host memory, or the adapter alone.

    Of an adapter's shards it is the weights as well, which are there without its base.
    """
    from experiments.policy.fsdp import is_sharded, whole
    from experiments.policy.lora import is_adapted, with_own_adapter

    if not is_adapted(model):
        copies = [weight.to("cpu", copy=True) for _, weight in plain_weights(model)]
        return as_module(copies, weights_version(model))
    if not is_sharded(model):
        return with_own_adapter(model)
    adapter = [whole(part.detach()).to("cpu", copy=True) for part in tensors_of(model)]
    return _of_shards(model, adapter, weights_version(model))


def _of_shards(model: nn.Module, adapter: Sequence[Tensor], version: int) -> nn.Module:
    """The snapshot of a sharded model with this adapter; all ranks have to ask."""
    copies = [weight.to("cpu", copy=True) for _, weight in plain_weights(model, adapter=adapter)]
    held = as_module(copies, version)
    held._adapter = list(adapter)
    return held


def tensors_of(held: nn.Module) -> list[Tensor]:
    """What tells one snapshot of a model from another: the same whether it is of shards or not."""
    if (adapter := getattr(held, "_adapter", None)) is not None:
        return adapter
    named = held.named_parameters()
    adapters = [parameter for name, parameter in named if ".lora_" in name]
    return adapters or list(held.parameters())


def from_tensors(model: nn.Module, weights: Sequence[Tensor], version: int) -> nn.Module:
    """The snapshot of `model` whose `tensors_of` these are."""
    import torch

    from experiments.policy.fsdp import is_sharded
    from experiments.policy.lora import is_adapted

    if not is_adapted(model):
        return as_module(weights, version)
    if is_sharded(model):
        return _of_shards(model, weights, version)
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
