"""Which weights a module holds: how many optimiser steps they have seen, wherever they are copied.

Engines know by it that a model's weights are others than those they hold, and every response says
by it which weights wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn


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


def copy_weights(source: nn.Module, into: nn.Module) -> None:
    """The weights of `source` and their version; both list their parameters in the same order."""
    import torch

    with torch.no_grad():
        for own, new in zip(into.parameters(), source.parameters(), strict=True):
            own.copy_(new)
    weights_are(into, weights_version(source))


def snapshot(model: nn.Module) -> nn.Module:
    """A copy of the weights alone, in host memory, for `copy_weights` to take them from."""
    copies = [parameter.detach().to("cpu", copy=True) for parameter in model.parameters()]
    return as_module(copies, weights_version(model))


def as_module(weights: Iterable[Tensor], version: int) -> nn.Module:
    """Weights for `copy_weights` to take; the tensors are not copied."""
    from torch import nn

    module = nn.ParameterList(nn.Parameter(each, requires_grad=False) for each in weights)
    weights_are(module, version)
    return module
