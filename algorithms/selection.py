"""KL-Cov and Clip-Cov (Cui et al., arXiv 2505.22617): spare the few tokens that cost the entropy.

A token's covariance is (A − mean A) (log π − mean log π), the means over the batch's tokens. Those
few with a large one lose their gradient (Clip-Cov) or are held to the writer (KL-Cov).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat

from algorithms import lazy_torch as torch
from algorithms.base import Batch, Needs
from algorithms.grpo import GRPO, GRPOConfig
from algorithms.ppo import PPO
from algorithms.ratio_variants import ClipOptions, RatioObjective, RatioOptions
from algorithms.tensors import clipped_terms, group_count, log_ratio, lots, masked_mean, places

if TYPE_CHECKING:
    from torch import Tensor

Share = Annotated[float, Field(ge=0, le=1)]


class Covariance(RatioObjective):
    """Needs the policy's log-probs before the update: which tokens they are, the batch decides."""

    @property
    def needs(self) -> Needs:
        return Needs(groups=True, behaviour=True, policy=True)


def covariance(batch: Batch) -> Tensor:
    """(batch, time), −∞ where masked out or dropped."""
    mask = batch.mask & batch.keep.unsqueeze(-1)
    a, logp = batch.advantages, batch.policy_logp
    cov = (a - masked_mean(a, mask)) * (logp - masked_mean(logp, mask))
    return cov.masked_fill(~mask, -torch.inf)


def count(batch: Batch, share: float) -> int:
    """A share of the batch's tokens, and one at least unless the share is 0."""
    tokens = int((batch.mask & batch.keep.unsqueeze(-1)).sum())
    return min(tokens, max(1, int(tokens * share))) if share else 0


@dataclass
class KLCovOptions(RatioOptions):
    """Options of KL-Cov."""

    share: Share = 2e-3  # of the tokens, those with the greatest covariance
    kl_coef: NonNegativeFloat = 1.0  # of |log π − log μ| on them


class KLCov(Covariance):
    """−ρ A, unclipped, and kl_coef |log ρ| on the share; on fresh responses |·| has no slope."""

    Config = KLCovOptions
    config: KLCovOptions

    def prepare(self, batch: Batch) -> Batch:
        batch = super().prepare(batch)
        cov = covariance(batch)
        top = cov.flatten().topk(count(batch, self.config.share)).indices
        held = torch.zeros_like(cov).flatten().index_fill(0, top, 1.0)
        return replace(batch, weights=held.view(cov.shape))

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        d = log_ratio(logp, batch.behaviour_logp, batch.mask)
        return -d.exp() * batch.advantages + self.config.kl_coef * batch.weights * d.abs()


@dataclass
class ClipCovOptions(ClipOptions):
    """Options of Clip-Cov."""

    clip_low: Share = 1.0  # 1: no bound below
    clip_high: PositiveFloat = 1.0
    share: Share = 2e-4  # of the tokens, drawn from those with a covariance in the band
    cov_low: PositiveFloat = 1.0
    cov_high: PositiveFloat = 5.0


class ClipCov(Covariance):
    """PPO's clip without the terms of a few tokens drawn from those in the band.

    The draw goes by the fractional part of a multiple of the token's log-prob under the writer: as
    good as random, and the same however the batch is laid out.
    """

    Config = ClipCovOptions
    config: ClipCovOptions

    def prepare(self, batch: Batch) -> Batch:
        c, batch = self.config, super().prepare(batch)
        cov, mask = covariance(batch), batch.mask
        rho = log_ratio(batch.policy_logp, batch.behaviour_logp, mask).exp()
        clipped = ((batch.advantages > 0) & (rho > 1 + c.clip_high)) | (
            (batch.advantages < 0) & (rho < 1 - c.clip_low)
        )
        band = (cov >= c.cov_low) & (cov <= c.cov_high) & ~clipped
        lots = (batch.behaviour_logp.masked_fill(~mask, 0.0) * 1e4).frac().abs()
        lots = lots.masked_fill(~band, -1.0).flatten()
        drawn = lots.topk(min(count(batch, c.share), int(band.sum()))).indices
        left = torch.ones_like(lots).index_fill(0, drawn, 0.0)
        return replace(batch, weights=left.view(cov.shape))

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        clip = (self.config.clip_low, self.config.clip_high)
        rows = (logp, batch.behaviour_logp, batch.advantages, batch.mask)
        return clipped_terms(*rows, *clip, weights=batch.weights)


# GRPO and PPO on some of a prompt's responses: CPPO and PF-PPO. Between responses that are alike
# in what decides, a lot does (`lots.py`).


def place(key: Tensor, batch: Batch) -> Tensor:
    """How many kept responses of the same group come before, by the greater key → (batch,)."""
    lot = lots(batch.behaviour_logp, batch.mask)
    rows = (of.view(-1, batch.group_size) for of in (key, lot, batch.keep))
    return places(*rows).flatten()


@dataclass
class CPPOOptions(GRPOConfig):
    """Options of CPPO: GRPO's, and"""

    prune: Annotated[float, Field(ge=0, lt=1)] = 0.5  # share of each group that is left out


class CPPO(GRPO):
    """Completion pruning (arXiv 2503.22342, and its code): GRPO on the greatest |A| of each group.

    With rewards of 0 and 1 the rarer of the two is kept. The paper fills the places with further
    prompts' responses: so many more prompts to a batch, `train.prompts` / (1 − prune).
    """

    Config = CPPOOptions
    config: CPPOOptions

    def prepare(self, batch: Batch) -> Batch:
        prepared = super().prepare(batch)
        count = group_count(batch.keep, batch.group_size, batch.rewards.dtype)
        left = count * (1 - self.config.prune)
        stays = place(prepared.advantages[:, 0].abs(), batch) < left.ceil()
        return replace(prepared, keep=prepared.keep & stays)


class PFPPO(PPO):
    """PF-PPO (policy filtration, arXiv 2409.06957): PPO on each prompt's best and worst response.

    The paper's BW filter, per prompt as in the authors' code. A prompt whose responses are all
    equally good gives one of them.
    """

    @property
    def needs(self) -> Needs:
        # What the critic learns from, the group decides: not before the batch is prepared.
        return replace(super().needs, groups=True, critic_apart=False)

    def prepare(self, batch: Batch) -> Batch:
        ends = (place(batch.rewards, batch) == 0) | (place(-batch.rewards, batch) == 0)
        return super().prepare(replace(batch, keep=batch.keep & ends))
