"""The weights of a policy as plain tensors: for engines, snapshots and checkpoints.

Engines take plain weights, whatever the learner's module is made of. An adapter is added to its
base out of place, in float32, and rounded once. Merging it in place and taking it out again would
change the base a little each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from experiments.policy.policy import Policy, WeightSource

LAYER = ".base_layer"  # peft's name for the layer under an adapter


def plain_weights(
    policy: Policy, remove_duplicate: bool = True, adapter: Sequence[Tensor] | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor) of each weight as a model without an adapter has them.

    Of a sharded policy this is a collective of all ranks.
    `adapter`: other adapter tensors, in the order of `own_tensors`, instead of the policy's own.
    """
    from experiments.policy.fsdp import whole

    model = policy.model
    layers = dict(model.named_modules(remove_duplicate=False))
    own = {name: p for name, p in model.named_parameters() if ".lora_" in name}
    tensors = dict(zip(own, own.values() if adapter is None else adapter, strict=True))
    for name, parameter in model.named_parameters(remove_duplicate=remove_duplicate):
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


def _with_adapter(weight: Tensor, name: str, layer: Any, tensors: Mapping[str, Tensor]) -> Tensor:
    """Return W + scale·BA of one of peft's linear layers, as a new tensor."""
    from experiments.policy.fsdp import whole

    (adapter,) = layer.active_adapters
    parts = (tensors[f"{name}.lora_{part}.{adapter}.weight"].detach() for part in "AB")
    a, b = (whole(part).to(weight.device).float() for part in parts)
    return (weight.float() + layer.scaling[adapter] * (b @ a)).to(weight.dtype)


def copy_weights(source: WeightSource, into: Policy) -> None:
    """Copy the weights of `source` and their version; both list them in the same order.

    They are plain weights, or the adapter's where `into` has one over the same base.
    """
    import torch

    weights = source.plain_weights() if into.adapter is None else source.own_tensors()
    with torch.no_grad():
        for own, new in zip(into.own_tensors(), weights, strict=True):
            own.copy_(new)
    into.version = source.version


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
    from experiments.policy.fsdp import whole
    from experiments.policy.lora import with_own_adapter

    if policy.adapter is None:
        return PlainWeights([_to_host(w) for w in policy.plain_weights()], policy.version)
    if not policy.sharded:
        return with_own_adapter(policy)
    adapter = [_to_host(whole(part.detach())) for part in policy.own_tensors()]
    return _with_sharded_base(policy, adapter, policy.version)


def from_tensors(policy: Policy, tensors: Sequence[Tensor], version: int) -> WeightSource:
    """Return the snapshot of `policy` whose `own_tensors` these are."""
    import torch

    from experiments.policy.lora import with_own_adapter

    if policy.adapter is None:
        return PlainWeights(list(tensors), version)
    if policy.sharded:
        return _with_sharded_base(policy, tensors, version)
    restored: Policy = with_own_adapter(policy)
    with torch.no_grad():
        for own, new in zip(restored.own_tensors(), tensors, strict=True):
            own.copy_(new)
    restored.version = version
    return restored


def _with_sharded_base(policy: Policy, adapter: Sequence[Tensor], version: int) -> PlainWeights:
    """Return the snapshot of a sharded policy with this adapter; a collective of all ranks."""
    tensors = [_to_host(weight) for _, weight in plain_weights(policy, adapter=adapter)]
    return PlainWeights(tensors, version, list(adapter))


def _to_host(tensor: Tensor) -> Tensor:
    return tensor.to("cpu", copy=True)
