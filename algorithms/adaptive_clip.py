"""BAPO and M2PO: PPO's clip with bounds that the batch itself decides, on stale responses.

The bounds come from the present policy's ratios ρ before the batch is cut. What they leave a
gradient is −ρ A, the rest has none: the gradient of the clipped surrogate, whose constant parts
are not in the loss's value.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat

from algorithms import lazy_torch as torch
from algorithms.base import Batch, Needs
from algorithms.group_ratio import ClipOptions, GroupRatio
from algorithms.tensors import log_ratio

if TYPE_CHECKING:
    from torch import Tensor


class AdaptiveClip(GroupRatio):
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
