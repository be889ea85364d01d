"""RePO and ReMix: replayed responses beside fresh ones (`train.replay_share`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from algorithms import lazy_torch as torch
from algorithms.base import Batch, Needs
from algorithms.grpo import group_advantages
from algorithms.ratio_variants import ClipOptions, RatioObjective
from algorithms.tensors import KLKind, clipped_terms, kl, log_ratio

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class RePOOptions(ClipOptions):
    """Options of RePO."""

    replay_coef: NonNegativeFloat = 1.0  # weight of the replayed responses' terms
    # mean and std of a group's rewards: of fresh and of replayed responses apart, or of all
    baseline: Literal["split", "mixed"] = "split"


class RePO(RatioObjective):
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


@dataclass
class ReMixOptions(ClipOptions):
    """Options of ReMix; clip_low and clip_high are its band's distance from π_k/μ."""

    kl: KLKind = "k3"  # estimator in the loss
    kl_coef: NonNegativeFloat = 0.02  # β, of both KLs together; 0 loads no reference
    base_from: NonNegativeInt = 50  # batches in which the whole KL is to the base; then its weight
    base_every: PositiveInt = 10  # falls by a tenth every so many batches,
    base_least: Annotated[float, Field(ge=0, le=1)] = 0.5  # down to this
    reincarnate_at: PositiveInt | None = 50  # T, in batches; null: never


class ReMix(RatioObjective):
    """Reincarnating mix-policy proximal policy gradient (Liang et al., arXiv 2507.06892), on GRPO.

    Three policies: μ wrote a response, some batches ago where it is replayed; π_k is the policy at
    the start of the batch; π is being trained. −min(r A, clip(r, π_k/μ − ε, π_k/μ + ε) A), r = π/μ:
    the band lies around where the batch begins, so that nothing is clipped before its first step,
    and acts from its second on (`train.epochs`). In π/π_k it is ε μ/π_k wide.

    KL-convex: β (λ KL(π ‖ π_base) + (1 − λ) KL(π ‖ π_{k−1})), λ(t) = max(1 − ⌈max(t − 50, 0) /
    10⌉ / 10, .5), t from 1; the three numbers are options. Reincarnation: from batch T + 1 on
    π_base is the policy as it was after batch T, and nothing is replayed (but `replay.frozen` goes
    on). The band stays: it is PPO's where π_k wrote the responses, as in the paper, and not where
    the writer lags.
    """

    Config = ReMixOptions
    config: ReMixOptions

    @property
    def needs(self) -> Needs:
        c, with_kl = self.config, self.config.kl_coef > 0
        return replace(
            super().needs,
            share="replay_share",
            start=True,
            reference=with_kl,
            precedent=c.base_from if with_kl and c.base_least < 1 else None,
            reincarnation=c.reincarnate_at if with_kl else None,
            replay_until=c.reincarnate_at,
        )

    def base_weight(self, batches: int) -> float:
        """λ, the base's weight in the KL, after so many batches."""
        c = self.config
        fallen = math.ceil(max(batches + 1 - c.base_from, 0) / c.base_every)
        return max(1 - fallen / 10, c.base_least)

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        c, advantages = self.config, batch.advantages
        ratio = log_ratio(logp, batch.behaviour_logp, batch.mask).exp()
        centre = log_ratio(batch.start_logp, batch.behaviour_logp, batch.mask).exp()
        clipped = ratio.clamp(centre - c.clip_low, centre + c.clip_high)
        terms = -torch.minimum(ratio * advantages, clipped * advantages)
        if c.kl_coef == 0:
            return terms
        weight = self.base_weight(batch.batches)
        anchors = [(weight, batch.ref_logp), (1 - weight, batch.precedent_logp)]
        for share, anchor in anchors:
            if share > 0:
                held = anchor.masked_fill(~batch.mask, 0.0)
                terms = terms + c.kl_coef * share * kl(logp, held, c.kl)
        return terms
