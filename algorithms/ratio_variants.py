"""GRPO's advantage with another rule for the ratio ρ = π/μ: who is clipped, capped or masked.

Where every ratio is 1 (fresh responses) they all have one gradient, up to the aggregation: they
differ on stale ones (`train.sync_every`), and none has a KL to the reference.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from algorithms import lazy_torch as torch
from algorithms.base import Batch, Needs
from algorithms.grpo import group_advantages
from algorithms.reinforce import GroupOptions, GroupReinforce
from algorithms.tensors import clipped_terms, log_ratio

if TYPE_CHECKING:
    from torch import Tensor

Below = Annotated[float, Field(gt=0, lt=1)]


@dataclass
class RatioOptions(GroupOptions):
    """What all of them have."""

    scale_by_std: bool = True  # GRPO's advantage; false: the plain difference to the mean


class RatioObjective(GroupReinforce):
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


class GSPO(RatioObjective):
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


class CISPO(RatioObjective):
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


class REC(RatioObjective):
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


class DPPO(RatioObjective):
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


# BAPO and M2PO: PPO's clip with bounds that the batch itself decides, on stale responses. The
# bounds come from the present policy's ratios ρ before the batch is cut. What they leave a
# gradient is −ρ A, the rest has none: the gradient of the clipped surrogate, whose constant parts
# are not in the loss's value.


class AdaptiveClip(RatioObjective):
    """Subclasses give the bounds of ρ."""

    @property
    def needs(self) -> Needs:
        return Needs(groups=True, behaviour=True, policy=True)

    @abstractmethod
    def bounds(self, log_rho: Tensor, advantages: Tensor) -> tuple[float, float]:
        """(tokens,) both → the least ρ of a token with A < 0, the greatest of one with A > 0."""

    def prepare(self, batch: Batch) -> Batch:
        batch = super().prepare(batch)
        live = batch.mask & batch.keep.unsqueeze(-1)
        log_rho = log_ratio(batch.policy_logp, batch.behaviour_logp, batch.mask)
        low, high = self.bounds(log_rho[live], batch.advantages[live])
        return replace(batch, weights=self.passes(log_rho.exp(), batch.advantages, low, high))

    def passes(self, rho: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
        """(batch, time), 1 where a gradient is left, else 0."""
        cut = ((advantages > 0) & (rho > high)) | ((advantages < 0) & (rho < low))
        return 1.0 - cut.to(rho.dtype)

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        rho = log_ratio(logp, batch.behaviour_logp, batch.mask).exp()
        return -rho * batch.advantages * batch.weights


@dataclass
class BAPOOptions(ClipOptions):
    """Options of BAPO; clip_low and clip_high are where its bounds start, 0.6 and 1.2."""

    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.4
    clip_high: PositiveFloat = 0.2
    clip_low_end: Annotated[float, Field(gt=0, lt=1)] = 0.1  # where they end, 0.9
    clip_high_end: PositiveFloat = 2.0  # and 3.0
    step: PositiveFloat = 0.05
    balance: NonNegativeFloat = 1.0  # the positive tokens' share over the negative ones', at least
    dual_clip: Annotated[float, Field(gt=1)] = 3.0  # A < 0: no gradient where ρ exceeds it


class BAPO(AdaptiveClip):
    """Balanced policy optimisation with adaptive clipping (arXiv 2510.18927, and its code).

    First the lower bound rises step by step, then the upper one, until Σ min(ρ, high) A over A > 0
    is `balance` times Σ max(ρ, low) |A| over A < 0.
    """

    Config = BAPOOptions
    config: BAPOOptions

    def bounds(self, log_rho: Tensor, advantages: Tensor) -> tuple[float, float]:
        c, rho = self.config, log_rho.exp()
        positive, negative = advantages > 0, advantages < 0
        low, high = 1 - c.clip_low, 1 + c.clip_high
        while True:
            gain = (rho.clamp(max=high) * advantages)[positive].sum()
            loss = -(rho.clamp(min=low) * advantages)[negative].sum()
            if gain >= c.balance * loss:
                return low, high
            if low < 1 - c.clip_low_end:
                low = min(low + c.step, 1 - c.clip_low_end)
            elif high < 1 + c.clip_high_end:
                high = min(high + c.step, 1 + c.clip_high_end)
            else:
                return low, high

    def passes(self, rho: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
        far = (advantages < 0) & (rho > self.config.dual_clip)
        return super().passes(rho, advantages, low, high).masked_fill(far, 0.0)


@dataclass
class M2POOptions(ClipOptions):
    """Options of M2PO; clip_low and clip_high are the tightest that its bounds get, 0.7 and 1.5."""

    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.3
    clip_high: PositiveFloat = 0.5
    second_moment: PositiveFloat = 0.04  # of log ρ, nats²


class M2PO(AdaptiveClip):
    """Second-moment trust policy optimisation (arXiv 2510.01161, and its code).

    The bounds are e^−τ and e^τ with the τ at which the mean of min(log² ρ, τ²) is `second_moment`,
    over the tokens that have moved the way that can harm (A > 0 and ρ > 1, A < 0 and ρ < 1).
    """

    Config = M2POOptions
    config: M2POOptions

    def bounds(self, log_rho: Tensor, advantages: Tensor) -> tuple[float, float]:
        c = self.config
        tau = second_moment_bound(log_rho[log_rho * advantages > 0].square(), c.second_moment)
        return min(math.exp(-tau), 1 - c.clip_low), max(math.exp(tau), 1 + c.clip_high)


def second_moment_bound(squares: Tensor, budget: float) -> float:
    """The τ with mean min(squares, τ²) = budget; infinite where their mean is no more than that."""
    ordered = squares.sort().values
    below = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)[:-1]])  # sum of those before each
    left = torch.arange(len(ordered), 0, -1, device=ordered.device)  # it and those after
    over = (below + left * ordered) > budget * len(ordered)  # with τ² = this square
    if not over.any():
        return math.inf
    first = int(over.int().argmax())
    return float(((budget * len(ordered) - below[first]) / left[first]).sqrt())
