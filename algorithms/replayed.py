"""RePO: replayed responses beside fresh ones, each compared with their own kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pydantic import NonNegativeFloat

from algorithms import lazy_torch as torch
from algorithms.base import Batch, Needs
from algorithms.group_ratio import ClipOptions, GroupRatio
from algorithms.grpo import group_advantages
from algorithms.tensors import clipped_terms

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class RePOOptions(ClipOptions):
    """Options of RePO."""

    replay_coef: NonNegativeFloat = 1.0  # weight of the replayed responses' terms
    # mean and std of a group's rewards: of fresh and of replayed responses apart, or of all
    baseline: Literal["split", "mixed"] = "split"


class RePO(GroupRatio):
    """Replay-enhanced policy optimisation (Li et al., arXiv 2506.09340, and its code).

    GRPO's clipped surrogate over all of a group (`train.replay_share`), without a KL, as the
    code's script has it; the ratio of a replayed response is to the policy that wrote it. One
    alone of its kind in a group has nothing to be compared with, and an advantage of 0.
    """

    Config = RePOOptions
    config: RePOOptions

    @property
    def needs(self) -> Needs:
        return replace(super().needs, share="replay_share")

    def advantages(self, batch: Batch) -> Tensor:
        c, fresh = self.config, batch.fresh
        kinds = (fresh, ~fresh) if c.baseline == "split" else (torch.ones_like(fresh),)
        rows = (batch.rewards, batch.group_size)
        parts = [
            group_advantages(*rows, scale_by_std=c.scale_by_std, keep=batch.keep & kind)
            for kind in kinds
        ]
        return sum(parts) * torch.where(fresh, 1.0, c.replay_coef)

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        clip = (self.config.clip_low, self.config.clip_high)
        return clipped_terms(logp, batch.behaviour_logp, batch.advantages, batch.mask, *clip)
