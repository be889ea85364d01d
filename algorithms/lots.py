"""Chance that is the same however a batch is laid out: lots drawn from what a response is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithms import lazy_torch as torch
from algorithms.tensors import masked_sum

if TYPE_CHECKING:
    from torch import Tensor


def lots(logp: Tensor, mask: Tensor) -> Tensor:
    """A number in [0, 1) for each response, from its own log-prob, (batch, time) → (batch,)."""
    return (masked_sum(logp, mask) * 1e3).frac().abs()


def places(key: Tensor, lot: Tensor, kept: Tensor) -> Tensor:
    """How many of a group's kept rows come before each; (groups, size) each → the same.

    The greater key first, then the greater lot; of equal responses, whose lots are equal, the
    earlier row.
    """
    row = torch.arange(key.shape[-1], device=key.device).expand(key.shape)
    ahead = torch.zeros_like(kept.unsqueeze(-1) & kept.unsqueeze(-2))
    for of in (-row, lot, key):  # the last decides first
        mine, other = of.unsqueeze(-1), of.unsqueeze(-2)
        ahead = (other > mine) | ((other == mine) & ahead)
    return (ahead & kept.unsqueeze(-2)).sum(-1)
