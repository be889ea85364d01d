"""FSDP2 shards of the modules that a learner holds (torch.distributed.fsdp.fully_shard).

Each decoder layer is a unit that gathers its weights while it works, so is a critic's head, and the
rest of a module is another.
Gradients are added up over the ranks, not averaged: a loss's contributions add up to the batch's.
What leaves the learner (state, weights for an engine) is whole, so that it can be loaded anywhere.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils import _pytree

from algorithms.base import PolicyOutput

Result = TypeVar("Result")

# FSDP looks for the tensors whose gradients it waits for in what a forward returns.
_pytree.register_pytree_node(
    PolicyOutput,
    lambda output: ([output.logp, output.entropy, output.values], None),
    lambda tensors, _: PolicyOutput(*tensors),
)


def shard(module: nn.Module, mesh: Any) -> None:
    """Keep this rank's part of the module's weights, in place."""
    from torch.distributed.fsdp import (
        MixedPrecisionPolicy,
        fully_shard,
        register_fsdp_forward_method,
    )

    backbone = getattr(getattr(module, "model", module), "base_model", None)
    head = [module.head] if hasattr(module, "head") else []  # a critic's: a unit has one precision
    precision = MixedPrecisionPolicy(reduce_dtype=torch.float32)  # where ranks' gradients add up
    for unit in (*getattr(backbone, "layers", ()), *head, module):
        fully_shard(unit, mesh=mesh, reshard_after_forward=True, mp_policy=precision)
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)  # gloo cannot scale while it adds
    for part in (module, getattr(module, "model", module)):  # a critic's forward asks its model
        part._sharded = True
    module._gathered = types.MethodType(_called, module)
    register_fsdp_forward_method(module, "_gathered")


def _called(module: nn.Module, function: Callable[..., Result], *given: Any) -> Result:
    return function(module, *given)


def is_sharded(module: nn.Module) -> bool:
    return getattr(module, "_sharded", False)


def gathered(module: nn.Module, function: Callable[..., Result], *given: Any) -> Result:
    """function(module, *given), while the weights that no layer gathers for itself are there.

    Only a root's forward gathers them; embedding, backbone and head are called one by one here.
    """
    if not hasattr(module, "_gathered"):
        return function(module, *given)
    return module._gathered(function, *given)


def whole(tensor: Tensor) -> Tensor:
    """The full tensor on every rank; all ranks have to ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_tree(tree: Any, keep: bool = True) -> Any:
    """A state with its shards as full tensors in the host's memory; others are not copied.

    A rank that is not to `keep` them gives its shards all the same and gets None.
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
    """This rank's part of a full tensor, where `like` is such a part."""
    if not isinstance(like, DTensor):
        return tensor
    on_device = tensor.to(like.device)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)


def optimiser_part(state: dict[str, Any], optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimiser's whole state as this rank's part of it, in tensors of its own."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    parts = {
        index: {
            key: as_shard(value, parameters[index]).clone() if value.dim() else value.clone()
            for key, value in held.items()
        }
        for index, held in state["state"].items()
    }
    copies = zip(state["copies"], optimiser.copies, strict=True)
    return state | {
        "state": parts,
        "copies": [as_shard(value, copy) for value, (_, copy) in copies],
    }
