"""GRPO's advantage with a clip that the whole batch decides: BAPO, M2PO, KL-Cov, Clip-Cov.

`prepare` computes the ratios ρ = π/μ of the current policy and marks tokens in `weights`, before
the batch is split. BAPO and M2PO adapt the bounds of ρ on stale responses. KL-Cov and Clip-Cov (Cui
et al., arXiv 2505.22617) single out the few tokens that cost the entropy. Those have a large
covariance (A − mean A) (log π − mean log π), the means over the batch's tokens.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat

from algorithms.base import Batch, Needs, Options
from algorithms.ppo import BelowOne, Share
from algorithms.ratio_variants import ClipOptions, RatioObjective, RatioOptions
from algorithms.reinforce import clipped_tokens
from algorithms.tensors import clipped_terms, is_clipped, log_ratio, masked_mean, torch

if TYPE_CHECKING:
    from torch import Tensor


class BatchObjective(RatioObjective):
    """Needs the policy's log-probs before the update as well: the whole batch decides."""

    @property
    def needs(self) -> Needs:
        return Needs(groups=True, behaviour=True, policy=True)


# Adaptive bounds of the ratio. Inside them the loss is −ρ A, outside they leave no gradient. That
# is the gradient of the clipped surrogate; its constant parts are not in the loss's value.


class AdaptiveClip(BatchObjective):
    """Subclasses define the bounds of ρ."""

    Config: type[Options] = ClipOptions

    @abstractmethod
    def bounds(self, log_rho: Tensor, advantages: Tensor) -> tuple[float, float]:
        """(tokens,) both → the least ρ of a token with A < 0, the greatest of one with A > 0."""

    def prepare(self, batch: Batch) -> Batch:
        batch = super().prepare(batch)
        kept = batch.kept_mask
        log_rho = log_ratio(batch.policy_logp, batch.behaviour_logp, batch.mask)
        low, high = self.bounds(log_rho[kept], batch.advantages[kept])
        return replace(
            batch, weights=self.gradient_mask(log_rho.exp(), batch.advantages, low, high)
        )

    def gradient_mask(self, rho: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
        """(batch, time): 1 for tokens with a gradient, else 0."""
        return 1.0 - is_clipped(rho, advantages, low, high).to(rho.dtype)

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        rho = log_ratio(logp, batch.behaviour_logp, batch.mask).exp()
        return -rho * batch.advantages * batch.weights

    def cut(self, logp: Tensor, batch: Batch) -> Tensor:
        return batch.weights == 0


@dataclass
class BAPOOptions(ClipOptions):
    """Options of BAPO; its bounds start at 1 − clip_low = 0.6 and 1 + clip_high = 1.2."""

    clip_low: BelowOne = 0.4  # the lower bound of ρ starts at 1 − clip_low
    clip_low_end: BelowOne = 0.1  # the lower bound ends at 1 − clip_low_end
    clip_high_end: PositiveFloat = 2.0  # the upper bound ends at 1 + clip_high_end
    step: PositiveFloat = 0.05  # by which a bound moves at once
    balance: NonNegativeFloat = 1.0  # least ratio of the positive tokens' share to the negative's
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

    def gradient_mask(self, rho: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
        far = (advantages < 0) & (rho > self.config.dual_clip)
        return super().gradient_mask(rho, advantages, low, high).masked_fill(far, 0.0)


@dataclass
class M2POOptions(ClipOptions):
    """Options of M2PO; its tightest bounds are 1 − clip_low = 0.7 and 1 + clip_high = 1.5."""

    clip_low: BelowOne = 0.3  # the lower bound of ρ is at most 1 − clip_low
    clip_high: PositiveFloat = 0.5  # the upper bound is at least 1 + clip_high
    second_moment: PositiveFloat = 0.04  # bound of the mean of log² ρ, nats²


class M2PO(AdaptiveClip):
    """Second-moment trust policy optimisation (arXiv 2510.01161, and its code).

    The bounds are e^−τ and e^τ with the τ at which the mean of min(log² ρ, τ²) is `second_moment`,
    over the tokens that have moved in the harmful direction (A > 0 and ρ > 1, A < 0 and ρ < 1).
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
    sum_before = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)[:-1]])
    remaining = torch.arange(len(ordered), 0, -1, device=ordered.device)  # from this one on
    over = (sum_before + remaining * ordered) > budget * len(ordered)  # with τ² = this square
    if not over.any():
        return math.inf
    first = int(over.int().argmax())
    return float(((budget * len(ordered) - sum_before[first]) / remaining[first]).sqrt())


# Covariances of a token's advantage and log-prob


def covariance(batch: Batch) -> Tensor:
    """(batch, time), −∞ where masked out or dropped."""
    kept, advantages, logp = batch.kept_mask, batch.advantages, batch.policy_logp
    product = (advantages - masked_mean(advantages, kept)) * (logp - masked_mean(logp, kept))
    return product.masked_fill(~kept, -torch.inf)


def token_count(batch: Batch, share: float) -> int:
    """A share of the batch's tokens, at least one unless the share is 0."""
    tokens = int(batch.kept_mask.sum())
    return min(tokens, max(1, int(tokens * share))) if share else 0


@dataclass
class KLCovOptions(RatioOptions):
    """Options of KL-Cov."""

    share: Share = 2e-3  # share of the tokens with a KL: those of the greatest covariance
    kl_coef: NonNegativeFloat = 1.0  # weight of |log π − log μ| on these tokens


class KLCov(BatchObjective):
    """−ρ A, unclipped, plus kl_coef |log ρ| on a share of the tokens, those that cost most entropy.

    On fresh responses |log ρ| has no slope.
    """

    Config = KLCovOptions
    config: KLCovOptions

    def prepare(self, batch: Batch) -> Batch:
        batch = super().prepare(batch)
        cov = covariance(batch)
        top = cov.flatten().topk(token_count(batch, self.config.share)).indices
        penalised = torch.zeros_like(cov).flatten().index_fill(0, top, 1.0)
        return replace(batch, weights=penalised.view(cov.shape))

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        log_rho = log_ratio(logp, batch.behaviour_logp, batch.mask)
        penalty = self.config.kl_coef * batch.weights * log_rho.abs()
        return -log_rho.exp() * batch.advantages + penalty


@dataclass
class ClipCovOptions(ClipOptions):
    """Options of Clip-Cov."""

    clip_low: Share = 1.0  # ρ is clipped below 1 − clip_low; 1: no bound below
    clip_high: PositiveFloat = 1.0  # ρ is clipped above 1 + clip_high
    share: Share = 2e-4  # share of the tokens that are left out, drawn from the band
    cov_low: PositiveFloat = 1.0  # least covariance of the band
    cov_high: PositiveFloat = 5.0  # greatest covariance of the band


class ClipCov(BatchObjective):
    """PPO's clip without the terms of a few tokens drawn from those in the band.

    The draw uses the fractional part of a multiple of the token's rollout log-prob: as good as
    random, and independent of how the batch is laid out.
    """

    Config = ClipCovOptions
    config: ClipCovOptions

    def prepare(self, batch: Batch) -> Batch:
        c, batch = self.config, super().prepare(batch)
        cov, mask = covariance(batch), batch.mask
        rho = log_ratio(batch.policy_logp, batch.behaviour_logp, mask).exp()
        clipped = is_clipped(rho, batch.advantages, 1 - c.clip_low, 1 + c.clip_high)
        band = (cov >= c.cov_low) & (cov <= c.cov_high) & ~clipped
        draw = (batch.behaviour_logp.masked_fill(~mask, 0.0) * 1e4).frac().abs()
        draw = draw.masked_fill(~band, -1.0).flatten()
        drawn = draw.topk(min(token_count(batch, c.share), int(band.sum()))).indices
        left = torch.ones_like(draw).index_fill(0, drawn, 0.0)
        return replace(batch, weights=left.view(cov.shape))

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        return clipped_terms(
            logp,
            batch.behaviour_logp,
            batch.advantages,
            batch.mask,
            self.config.clip_low,
            self.config.clip_high,
            batch.weights,
        )

    def cut(self, logp: Tensor, batch: Batch) -> Tensor:
        clipped = clipped_tokens(logp, batch, self.config.clip_low, self.config.clip_high)
        return clipped | ((batch.weights == 0) & (batch.advantages != 0))
