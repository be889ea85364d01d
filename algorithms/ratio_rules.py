"""GRPO's advantage with another rule for the ratio ρ = π/μ: clipped, capped, gated or masked.

Where every ratio is 1 (fresh responses) GSPO, CISPO, SAPO, VESPO, REC and DPPO have one gradient,
up to the aggregation. They differ on stale responses (`train.sync_every`), and none has a KL to the
reference. RePO and ReMix mix replayed responses with fresh ones (`train.replay_share`).

BAPO, M2PO, KL-Cov and Clip-Cov have a clip that the whole batch decides: `prepare` computes the
ratios ρ = π/μ of the current policy and marks tokens in `weights`, before the batch is split. BAPO
and M2PO adapt the bounds of ρ on stale responses. KL-Cov and Clip-Cov (Cui et al., arXiv
2505.22617) single out the few tokens that cost the entropy. Those have a large covariance
(A − mean A) (log π − mean log π), the means over the batch's tokens.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from algorithms.base import Batch, BelowOne, Needs, Options, Share
from algorithms.grpo import group_advantages
from algorithms.policy_gradient import Clipped, GroupOptions, GroupReinforce
from algorithms.tensors import (
    Aggregate,
    KLKind,
    Tensor,
    clipped_terms,
    is_clipped,
    kl,
    log_ratio,
    masked_mean,
    torch,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class RatioOptions(GroupOptions):
    """Common options."""

    scale_by_std: bool


class RatioObjective(GroupReinforce):
    """Needs groups and behaviour log-probs."""

    Config: type[Options] = RatioOptions
    config: RatioOptions

    @property
    def needs(self) -> Needs:
        return Needs(groups=2, behaviour="ratio")

    def advantages(self, batch: Batch) -> Tensor:
        scale = self.config.scale_by_std
        return group_advantages(
            batch.rewards, batch.group_size, scale_by_std=scale, keep=batch.keep
        )


@dataclass
class ClipOptions(RatioOptions):
    """Bounds of the ratio, 1 − clip_low and 1 + clip_high."""

    clip_low: BelowOne
    clip_high: PositiveFloat


class GSPO(RatioObjective):
    """Group sequence policy optimisation (Zheng et al., arXiv 2507.18071, eq. 5).

    One ratio for a response, s = exp(mean_t log ρ), clipped as in PPO. Its bounds are a thousandth
    of PPO's, because a mean over tokens hardly moves.
    """

    Config = ClipOptions
    config: ClipOptions

    def log_sequence_ratio(self, logp: Tensor, batch: Batch) -> Tensor:
        """log s → (batch, 1)."""
        length = batch.mask.sum(-1, keepdim=True).clamp(min=1)
        return log_ratio(logp, batch.behaviour_logp, batch.mask).sum(-1, keepdim=True) / length

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        c, log_s = self.config, self.log_sequence_ratio(logp, batch)
        advantage, one = batch.advantages[:, :1], torch.ones_like(batch.mask[:, :1])
        clipped = clipped_terms(
            log_s, torch.zeros_like(log_s), advantage, one, c.clip_low, c.clip_high
        )
        return clipped.expand(batch.mask.shape)

    def cut(self, logp: Tensor, batch: Batch) -> Tensor:
        c, s = self.config, self.log_sequence_ratio(logp, batch).exp()
        return is_clipped(s, batch.advantages, 1 - c.clip_low, 1 + c.clip_high)


@dataclass
class CISPOOptions(RatioOptions):
    """Options of CISPO."""

    cap: PositiveFloat


class CISPO(RatioObjective):
    """Clipped IS-weight policy optimisation (MiniMax-M1, arXiv 2506.13585).

    −sg[min(ρ, cap)] A log π: no token loses its gradient. The option is the cap itself, not 1 + ε
    as in some codes; 5 is ScaleRL's (as in TRL), the paper gives none.
    """

    Config = CISPOOptions
    config: CISPOOptions

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        weight = log_ratio(logp.detach(), batch.behaviour_logp, batch.mask).exp()
        return -weight.clamp(max=self.config.cap) * batch.advantages * logp

    def cut(self, logp: Tensor, batch: Batch) -> Tensor:
        capped = log_ratio(logp, batch.behaviour_logp, batch.mask).exp() > self.config.cap
        return capped & (batch.advantages != 0)


@dataclass
class SAPOOptions(RatioOptions):
    """Options of SAPO."""

    tau_positive: PositiveFloat
    tau_negative: PositiveFloat


class SAPO(RatioObjective):
    """Soft adaptive policy optimisation (arXiv 2511.20347; as in verl): −A σ(τ(ρ − 1)) 4/τ.

    A smooth gate in place of the clip: its slope in ρ is 1 at ρ = 1 and falls on both sides, faster
    with a greater τ, which is τ_positive where A > 0 and τ_negative elsewhere.
    """

    Config = SAPOOptions
    config: SAPOOptions

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        c, ratio = self.config, log_ratio(logp, batch.behaviour_logp, batch.mask).exp()
        tau = torch.where(batch.advantages > 0, c.tau_positive, c.tau_negative).to(logp.dtype)
        return -torch.sigmoid(tau * (ratio - 1)) * 4 / tau * batch.advantages


@dataclass
class VESPOOptions(RatioOptions):
    """Options of VESPO: exponent and rate of the weight, by the advantage's sign."""

    exponent_positive: PositiveFloat
    rate_positive: PositiveFloat
    exponent_negative: PositiveFloat
    rate_negative: PositiveFloat


class VESPO(RatioObjective):
    """Variational sequence-level soft policy optimisation (arXiv 2602.10693).

    −sg[W^c1 e^{c2 (1 − W)}] A log π with the whole response's ratio W = π/μ, not its mean over
    tokens. The weight is 1 where W = 1 and falls to 0 on both sides without a clip; its peak is at
    W = c1/c2. (Formula and numbers from the authors' code.)
    """

    Config = VESPOOptions
    config: VESPOOptions

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        c, positive = self.config, batch.advantages > 0
        log_w = log_ratio(logp.detach(), batch.behaviour_logp, batch.mask).sum(-1, keepdim=True)
        exponent = torch.where(positive, c.exponent_positive, c.exponent_negative).to(logp.dtype)
        rate = torch.where(positive, c.rate_positive, c.rate_negative).to(logp.dtype)
        weight = (exponent * log_w + rate * (1 - log_w.exp())).exp()
        return -weight * batch.advantages * logp


@dataclass
class RECOptions(ClipOptions):
    """Options of REC."""

    scale_by_std: bool
    side: Literal["one", "two", "ring"]
    importance: bool
    ring_low: BelowOne
    ring_high: PositiveFloat


class REC(RatioObjective):
    """REINFORCE with clipping, read as off-policy (arXiv 2509.24203): −w A log π on a mask.

    one: where PPO's clip leaves a gradient; two: where ρ is in the band; ring: the band, and tokens
    so far on the good side of it that they cannot do harm. w is ρ (IS) or 1 (NoIS: the paper claims
    that the clip alone suffices).
    """

    Config = RECOptions
    config: RECOptions

    @property
    def needs(self) -> Needs:
        return replace(super().needs, behaviour="ratio" if self.config.importance else "own")

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        ratio = log_ratio(logp.detach(), batch.behaviour_logp, batch.mask).exp()
        weight = ratio if self.config.importance else torch.ones_like(ratio)
        return -(weight * self.passes(ratio, batch.advantages)) * batch.advantages * logp

    def cut(self, logp: Tensor, batch: Batch) -> Tensor:
        ratio = log_ratio(logp, batch.behaviour_logp, batch.mask).exp()
        return ~self.passes(ratio, batch.advantages) & (batch.advantages != 0)

    def passes(self, ratio: Tensor, advantages: Tensor) -> Tensor:
        """Bool: tokens with a gradient."""
        c = self.config
        not_low, not_high = ratio >= 1 - c.clip_low, ratio <= 1 + c.clip_high
        if c.side == "one":
            passes = ((advantages >= 0) & not_high) | ((advantages <= 0) & not_low)
        else:
            passes = not_high & not_low
        if c.side == "ring":
            passes = passes | ((advantages >= 0) & (ratio <= 1 - c.ring_low))
            passes = passes | ((advantages <= 0) & (ratio >= 1 + c.ring_high))
        return passes


@dataclass
class DPPOOptions(RatioOptions):
    """Options of DPPO."""

    scale_by_std: bool
    threshold: BelowOne
    quadratic_coef: NonNegativeFloat


class DPPO(RatioObjective):
    """Divergence PPO with the binary total variation (arXiv 2602.04879; prime-rl's loss).

    −ρ A, without the tokens whose probability has moved in the advantage's direction by more than
    the threshold: it bounds π − μ, where PPO bounds π/μ. Plus quadratic_coef log² ρ on all tokens,
    which draws the dropped ones back.
    """

    Config = DPPOOptions
    config: DPPOOptions

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        log_rho = log_ratio(logp, batch.behaviour_logp, batch.mask)
        dropped = self.cut(logp.detach(), batch)
        surrogate = -(log_rho.exp() * batch.advantages).masked_fill(dropped, 0.0)
        return surrogate + self.config.quadratic_coef * log_rho.square()

    def cut(self, logp: Tensor, batch: Batch) -> Tensor:
        moved = logp.exp() - batch.behaviour_logp.masked_fill(~batch.mask, 0.0).exp()
        return moved * batch.advantages.sign() > self.config.threshold


@dataclass
class RePOOptions(ClipOptions):
    """Options of RePO."""

    aggregate: Aggregate
    replay_coef: NonNegativeFloat
    baseline: Literal["split", "mixed"]


class RePO(Clipped, RatioObjective):
    """Replay-enhanced policy optimisation (Li et al., arXiv 2506.09340, and its code).

    GRPO's clipped surrogate over all of a group (`train.replay_share`), without a KL, as in the
    code's script. The ratio of a replayed response is against the policy that generated it. The
    only fresh or only replayed response of a group has nothing to be compared with, and an
    advantage of 0.
    """

    Config = RePOOptions
    config: RePOOptions

    @property
    def needs(self) -> Needs:
        return replace(super().needs, share="replay_share")

    def advantages(self, batch: Batch) -> Tensor:
        c, fresh = self.config, batch.fresh
        pools = (fresh, ~fresh) if c.baseline == "split" else (torch.ones_like(fresh),)
        parts = [
            group_advantages(
                batch.rewards, batch.group_size, scale_by_std=c.scale_by_std, keep=batch.keep & pool
            )
            for pool in pools
        ]
        return sum(parts) * torch.where(fresh, 1.0, c.replay_coef)


@dataclass
class ReMixOptions(ClipOptions):
    """Options of ReMix; clip_low and clip_high are its band's distance from π_k/μ."""

    aggregate: Aggregate
    kl: KLKind
    kl_coef: NonNegativeFloat
    base_from: NonNegativeInt
    base_every: PositiveInt
    base_least: Share
    reincarnate_at: PositiveInt | None


class ReMix(RatioObjective):
    """Reincarnating mix-policy proximal policy gradient (Liang et al., arXiv 2507.06892), on GRPO.

    Three policies: μ generated a response, some batches ago if it is replayed; π_k is the policy at
    the start of the batch; π is being trained. −min(r A, clip(r, π_k/μ − ε, π_k/μ + ε) A), r = π/μ:
    the band is centred on the start of the batch. So nothing is clipped before its first step, and
    the band acts from the second on (`train.epochs`). In π/π_k it is ε μ/π_k wide.

    KL-convex: β (λ KL(π ‖ π_base) + (1 − λ) KL(π ‖ π_{k−1})), λ(t) = max(1 − ⌈max(t − 50, 0) /
    10⌉ / 10, .5), t from 1; the three numbers are options. Reincarnation: from batch T + 1 on
    π_base is the policy after batch T, and nothing is replayed (except with `replay.frozen`). The
    band stays: it is PPO's, as in the paper, for responses of π_k, but not for stale ones.
    """

    Config = ReMixOptions
    config: ReMixOptions

    @property
    def needs(self) -> Needs:
        c, with_kl = self.config, self.config.kl_coef > 0
        copies = {"reference": c.reincarnate_at is not None, "precedent": c.base_least < 1}
        return replace(
            super().needs,
            share="replay_share",
            behaviour="own",
            reference=with_kl,
            copies=tuple(name for name, needed in copies.items() if needed and with_kl),
        )

    @property
    def replay_until(self) -> int | None:
        return self.config.reincarnate_at

    def before_batch(
        self, batch: Batch, logp: Callable[[str], Tensor], keep: Callable[[str], None]
    ) -> Batch:
        at, copies = self.config.reincarnate_at, self.needs.copies
        batch = replace(batch, start_logp=logp("policy"))
        if "reference" in copies and at is not None and batch.batches >= at:
            if batch.batches == at:
                keep("reference")
            batch = replace(batch, ref_logp=logp("reference"))
        if "precedent" in copies:
            if self.base_weight(batch.batches) < 1:
                batch = replace(batch, earlier_logp=logp("precedent"))
            keep("precedent")
        return batch

    def base_weight(self, batches: int) -> float:
        """λ, the base's weight in the KL, after so many batches."""
        c = self.config
        tenths = math.ceil(max(batches + 1 - c.base_from, 0) / c.base_every)
        return max(1 - tenths / 10, c.base_least)

    def ratio_and_band(self, logp: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """π/μ and its bounds, all (batch, time)."""
        ratio = log_ratio(logp, batch.behaviour_logp, batch.mask).exp()
        centre = log_ratio(batch.start_logp, batch.behaviour_logp, batch.mask).exp()
        return ratio, centre - self.config.clip_low, centre + self.config.clip_high

    def cut(self, logp: Tensor, batch: Batch) -> Tensor:
        ratio, lowest, highest = self.ratio_and_band(logp, batch)
        return is_clipped(ratio, batch.advantages, lowest, highest)

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        c, advantages = self.config, batch.advantages
        ratio, lowest, highest = self.ratio_and_band(logp, batch)
        clipped = ratio.clamp(lowest, highest)
        terms = -torch.minimum(ratio * advantages, clipped * advantages)
        if c.kl_coef == 0:
            return terms
        base_weight = self.base_weight(batch.batches)
        anchors = [(base_weight, batch.ref_logp), (1 - base_weight, batch.earlier_logp)]
        for weight, anchor_logp in anchors:
            if weight > 0:
                anchor_logp = anchor_logp.masked_fill(~batch.mask, 0.0)
                terms = terms + c.kl_coef * weight * kl(logp, anchor_logp, c.kl)
        return terms


# The whole batch decides


class BatchObjective(RatioObjective):
    """Needs the policy's log-probs before the update as well: the whole batch decides."""

    @property
    def needs(self) -> Needs:
        return Needs(groups=2, behaviour="ratio", policy=True)


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

    clip_low: BelowOne
    clip_low_end: BelowOne
    clip_high_end: PositiveFloat
    step: PositiveFloat
    balance: NonNegativeFloat
    dual_clip: Annotated[float, Field(gt=1)]


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

    clip_low: BelowOne
    clip_high: PositiveFloat
    second_moment: PositiveFloat


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

    share: Share
    kl_coef: NonNegativeFloat


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

    clip_low: Share
    clip_high: PositiveFloat
    share: Share
    cov_low: PositiveFloat
    cov_high: PositiveFloat


class ClipCov(Clipped, BatchObjective):
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
        return super().terms(logp, batch) * batch.weights

    def cut(self, logp: Tensor, batch: Batch) -> Tensor:
        return super().cut(logp, batch) | ((batch.weights == 0) & (batch.advantages != 0))
