"""GRPO's advantage with another rule for the ratio ρ = π/μ: who is clipped, capped or masked.

Where every ratio is 1 (fresh responses) they all have one gradient, up to the aggregation: they
differ on stale ones (`train.sync_every`), and none has a KL to the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from algorithms import lazy_torch as torch
from algorithms.base import Batch, Needs
from algorithms.group_reinforce import GroupOptions, GroupReinforce
from algorithms.grpo import group_advantages
from algorithms.tensors import clipped_terms, log_ratio

if TYPE_CHECKING:
    from torch import Tensor

Below = Annotated[float, Field(gt=0, lt=1)]


@dataclass
class RatioOptions(GroupOptions):
    """What all of them have."""

    scale_by_std: bool = True  # GRPO's advantage; false: the plain difference to the mean


class GroupRatio(GroupReinforce):
    """Needs groups and the writer's log-probs."""

    Config = RatioOptions
    config: RatioOptions

    @property
    def needs(self) -> Needs:
        return Needs(groups=True, behaviour=True)

    def advantages(self, batch: Batch) -> Tensor:
        scale = self.config.scale_by_std
        return group_advantages(
            batch.rewards, batch.group_size, scale_by_std=scale, keep=batch.keep
        )


@dataclass
class ClipOptions(RatioOptions):
    """Bounds of the ratio, 1 − clip_low and 1 + clip_high."""

    clip_low: Below = 0.2
    clip_high: PositiveFloat = 0.2


class GSPO(GroupRatio):
    """Group sequence policy optimisation (Zheng et al., arXiv 2507.18071, eq. 5).

    One ratio for a response, s = exp(mean_t log ρ), clipped as in PPO. Its bounds are a thousandth
    of PPO's, because a mean over tokens hardly moves.
    """

    Config = ClipOptions
    config: ClipOptions

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        c, length = self.config, batch.mask.sum(-1, keepdim=True).clamp(min=1)
        log_s = log_ratio(logp, batch.behaviour_logp, batch.mask).sum(-1, keepdim=True) / length
        advantage, one = batch.advantages[:, :1], torch.ones_like(batch.mask[:, :1])
        clipped = clipped_terms(
            log_s, torch.zeros_like(log_s), advantage, one, c.clip_low, c.clip_high
        )
        return clipped.expand(batch.mask.shape)


@dataclass
class CISPOOptions(RatioOptions):
    """Options of CISPO."""

    cap: PositiveFloat = 5.0  # of a token's weight ρ


class CISPO(GroupRatio):
    """Clipped IS-weight policy optimisation (MiniMax-M1, arXiv 2506.13585).

    −sg[min(ρ, cap)] A log π: no token loses its gradient. The cap itself is meant, not 1 + ε as in
    some codes; 5 is ScaleRL's (as in TRL), the paper gives none.
    """

    Config = CISPOOptions
    config: CISPOOptions

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        weight = log_ratio(logp.detach(), batch.behaviour_logp, batch.mask).exp()
        return -weight.clamp(max=self.config.cap) * batch.advantages * logp


@dataclass
class RECOptions(ClipOptions):
    """Options of REC; with scale_by_std=false as in the paper."""

    side: Literal["one", "two", "ring"] = "one"
    importance: bool = False  # weigh each token by its ratio
    ring_low: Below = 0.6  # side=ring: also A ≥ 0 with ρ ≤ 1 − ring_low,
    ring_high: PositiveFloat = 2.0  # and A ≤ 0 with ρ ≥ 1 + ring_high


class REC(GroupRatio):
    """REINFORCE with clipping, read as off-policy (arXiv 2509.24203): −w A log π on a mask.

    one: where PPO's clip leaves a gradient; two: where ρ is in the band; ring: the band, and what
    lies so far on the good side that it cannot do harm. w is ρ (IS) or 1 (NoIS, the paper's claim
    being that the clip alone does it).
    """

    Config = RECOptions
    config: RECOptions

    @property
    def needs(self) -> Needs:
        return replace(super().needs, anchored=not self.config.importance)

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        c, advantages = self.config, batch.advantages
        ratio = log_ratio(logp.detach(), batch.behaviour_logp, batch.mask).exp()
        below, above = ratio >= 1 - c.clip_low, ratio <= 1 + c.clip_high
        if c.side == "one":
            passes = ((advantages >= 0) & above) | ((advantages <= 0) & below)
        else:
            passes = above & below
        if c.side == "ring":
            passes = passes | ((advantages >= 0) & (ratio <= 1 - c.ring_low))
            passes = passes | ((advantages <= 0) & (ratio >= 1 + c.ring_high))
        weight = ratio if c.importance else torch.ones_like(ratio)
        return -(weight * passes) * advantages * logp


@dataclass
class DPPOOptions(RatioOptions):
    """Options of DPPO."""

    threshold: Below = 0.2  # of the difference of probabilities
    quadratic_coef: NonNegativeFloat = 1e-3  # of log² ρ on the tokens that pass


class DPPO(GroupRatio):
    """Divergence PPO with the binary total variation (arXiv 2602.04879; prime-rl's loss).

    −ρ A, without the tokens whose probability has moved the advantage's way by more than the
    threshold: π − μ, where PPO bounds π/μ; and quadratic_coef log² ρ on all, which draws those
    back.
    """

    Config = DPPOOptions
    config: DPPOOptions

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        d = log_ratio(logp, batch.behaviour_logp, batch.mask)
        moved = logp.detach().exp() - batch.behaviour_logp.masked_fill(~batch.mask, 0.0).exp()
        gone = moved * batch.advantages.sign() > self.config.threshold
        surrogate = -(d.exp() * batch.advantages).masked_fill(gone, 0.0)
        return surrogate + self.config.quadratic_coef * d.square()
