"""REINFORCE over groups of responses: −w A log π per token, and what each paper takes for A and w.

`GroupReinforce` is what they share: an advantage for each response from its group's rewards,
spread over its tokens, and the mean over the batch. Below it, one class for each objective says
which advantage and which terms. Those with a clip or a cap on the ratio: `group_ratio.py`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from algorithms import lazy_torch as torch
from algorithms.base import Algorithm, Batch, Needs, Options, PolicyOutput
from algorithms.tensors import Aggregate, aggregate, group_count, group_mean, log_ratio, masked_sum

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class GroupOptions(Options):
    """What all of them have."""

    aggregate: Aggregate = "token_mean"
    constant_length: PositiveInt = 1  # aggregate=constant: the divisor; 1 sums a response's tokens


class GroupReinforce(Algorithm):
    """Subclasses give `advantages` of responses and, unless plain, the loss's `terms` of tokens."""

    Config = GroupOptions
    config: GroupOptions

    @abstractmethod
    def advantages(self, batch: Batch) -> Tensor:
        """(batch,)"""

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        """(batch, time); logp is the policy's, 0 where masked out."""
        return -batch.advantages * logp

    def prepare(self, batch: Batch) -> Batch:
        spread = self.advantages(batch).unsqueeze(-1).expand(batch.mask.shape)
        return replace(batch, advantages=spread)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, mask = self.config, batch.mask
        share = batch.token_share if c.aggregate == "token_mean" else batch.sequence_share
        terms = self.terms(policy.logp.masked_fill(~mask, 0.0), batch)
        if batch.correction is not None:
            terms = terms * batch.correction.masked_fill(~mask, 0.0)
        return aggregate(terms, mask, c.aggregate, c.constant_length) * share, {}


def centred(batch: Batch, rewards: Tensor) -> Tensor:
    """Rewards less their group's mean → (batch,)."""
    size = batch.group_size
    return rewards - group_mean(rewards, batch.keep, size).repeat_interleave(size)


@dataclass
class RLOOOptions(GroupOptions):
    """Options of RLOO."""

    kl_coef: NonNegativeFloat = 0.03  # of the whole response's k1 in its reward; 0: no reference
    max_lag: NonNegativeInt = 0  # steps that the writer may be old: there is no ratio


class RLOO(GroupReinforce):
    """REINFORCE leave-one-out (Ahmadian et al., arXiv 2402.14740).

    A_i = R'_i − the mean of the group's others, R' = R − kl_coef Σ_t (log μ − log π_ref), detached.
    """

    Config = RLOOOptions
    config: RLOOOptions

    @property
    def needs(self) -> Needs:
        c = self.config
        with_kl = c.kl_coef > 0
        writers = {"behaviour": with_kl, "anchored": with_kl}
        return Needs(reference=with_kl, groups=True, **writers, max_lag=c.max_lag)

    def advantages(self, batch: Batch) -> Tensor:
        rewards = batch.rewards
        count = group_count(batch.keep, batch.group_size, rewards.dtype)
        if self.config.kl_coef > 0:
            k1 = masked_sum(batch.behaviour_logp - batch.ref_logp, batch.mask)
            rewards = rewards - self.config.kl_coef * k1
        return centred(batch, rewards) * count / (count - 1).clamp(min=1)


@dataclass
class OPMDOptions(GroupOptions):
    """Options of OPMD."""

    tau: PositiveFloat = 1.0  # of the KL to the writer, of which the first order leaves 1/(1+τ)
    baseline: Literal["mean", "log_mean_exp"] = "mean"  # of the group: Rm, or τ log mean e^{R/τ}


class OPMD(GroupReinforce):
    """Online policy mirror descent, the simple form (arXiv 2509.24203, and Trinity-RFT's code).

    −(R − V) log π / (1 + τ): no ratio, no clip, so it may learn from any writer.
    """

    Config = OPMDOptions
    config: OPMDOptions

    @property
    def needs(self) -> Needs:
        return Needs(groups=True, off_policy=True)

    def advantages(self, batch: Batch) -> Tensor:
        tau, size = self.config.tau, batch.group_size
        if self.config.baseline == "mean":
            return centred(batch, batch.rewards)
        scaled = (batch.rewards / tau).masked_fill(~batch.keep, -math.inf).view(-1, size)
        count = batch.keep.view(-1, size).sum(-1).clamp(min=1).to(scaled.dtype)
        value = tau * (scaled.logsumexp(-1) - count.log())
        value = value.repeat_interleave(size).masked_fill(~batch.keep, 0.0)
        return batch.rewards - value

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        return super().terms(logp, batch) / (1 + self.config.tau)


@dataclass
class AsymREOptions(GroupOptions):
    """Options of AsymRE."""

    delta_v: float = -0.1  # δV; from 0 upwards support is lost off-policy, says the paper


class AsymRE(GroupReinforce):
    """Asymmetric REINFORCE (arXiv 2506.20520): A = R − (mean + δV), no ratio, any writer.

    δV < 0 adds |δV| of maximum likelihood of every response: failures of a failed group too.
    """

    Config = AsymREOptions
    config: AsymREOptions

    @property
    def needs(self) -> Needs:
        return Needs(groups=True, off_policy=True)

    def advantages(self, batch: Batch) -> Tensor:
        return centred(batch, batch.rewards) - self.config.delta_v


@dataclass
class TOPROptions(GroupOptions):
    """Options of TOPR."""

    baseline: float = 0.5  # c of R − c, in units of reward


class TOPR(GroupReinforce):
    """Tapered off-policy REINFORCE (Le Roux et al., arXiv 2503.14286).

    −sg[a] (R − c) log π(y): a = 1 where R ≥ c, as in supervised learning, else the whole response's
    min(π/μ, 1). The paper's rewards are −1 and 1 with c = 0: half of that is 0 and 1 with c = 0.5.
    With c = 0 failures weigh nothing. (The sequence ratio was read in a summary of the paper; two
    public codes take token ratios.) A failure that nobody's log-probs are known of is left out.
    """

    Config = TOPROptions
    config: TOPROptions

    @property
    def needs(self) -> Needs:
        return Needs(behaviour=True, anchored=True, off_policy=True)

    def prepare(self, batch: Batch) -> Batch:
        batch = super().prepare(batch)
        return replace(batch, keep=batch.keep & (batch.online | (batch.advantages[:, 0] >= 0)))

    def advantages(self, batch: Batch) -> Tensor:
        return batch.rewards - self.config.baseline

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        with torch.no_grad():
            ratio = log_ratio(logp, batch.behaviour_logp, batch.mask)
            taper = ratio.sum(-1, keepdim=True).clamp(max=0).exp()
        return -torch.where(batch.advantages >= 0, 1.0, taper) * batch.advantages * logp
