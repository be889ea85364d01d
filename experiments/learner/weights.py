"""How engines know that a model's weights are others than those they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def weights_version(model: nn.Module) -> int:
    """How often this project has changed the module's weights in place; see `weights_changed`."""
    return getattr(model, "_weights_version", 0)


def weights_changed(model: nn.Module) -> None:
    """To be called by whoever changes weights in place.

    Torch's own count of a tensor's changes is no substitute: fused optimisers do not raise it.
    """
    model._weights_version = weights_version(model) + 1
