"""FSDP2 shards of the modules that a learner holds (torch.distributed.fsdp.fully_shard).

Each decoder layer is a unit that gathers its weights while it computes. A critic's head is another,
and so is the rest of a module. Gradients are summed over the ranks, not averaged, because a loss's
contributions add up to the batch's. State and weights leave the learner as full tensors, so that
they can be loaded anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils import _pytree

from algorithms.base import PolicyOutput

Result = TypeVar("Result")

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
