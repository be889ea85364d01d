"""Learning from demonstrations: LUFFY, CHORD and SRFT mix them in; SFT and RAFT only imitate.

A demonstration is an accepted program of the data set (`train.offline_share`); failed programs are
dropped. Its behaviour log-probs are unknown, and no objective here needs them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from algorithms.base import Algorithm, Batch, BelowOne, Needs, Options, PolicyOutput, Share
from algorithms.grpo import group_advantages
from algorithms.policy_gradient import clipped_tokens
from algorithms.tensors import (
    Tensor,
    aggregate,
    clipped_terms,
    log_ratio,
    masked_mean,
    masked_sum,
    torch,
)


class DemonstrationMix(Algorithm):
    """Needs groups and the log-probs of its own policy's responses."""

    @property
    def needs(self) -> Needs:
        return Needs(
            groups=2,
            behaviour="ratio",
            off_policy=True,
            share="offline_share",
            best_reward="success",
        )

    def prepare(self, batch: Batch) -> Batch:
        accepted = batch.rewards >= self.reward_high
        return replace(batch, keep=batch.keep & (batch.online | accepted))

    def advantages(self, batch: Batch, keep: Tensor, scale_by_std: bool) -> Tensor:
        """(batch, time), over the groups' rows in `keep`."""
        advantages = group_advantages(
            batch.rewards, batch.group_size, scale_by_std=scale_by_std, keep=keep
        )
        return advantages.unsqueeze(-1).expand(batch.mask.shape)


@dataclass
class LUFFYOptions(Options):
    """Options of LUFFY."""

    shaping: PositiveFloat
    entropy_coef: NonNegativeFloat
    constant_length: PositiveInt


class LUFFY(DemonstrationMix):
    """Learning under off-policy guidance (Yan et al., arXiv 2504.14945).

    Demonstrations join the group, whose mean is the baseline, with no std. Their tokens' ratio is
    p/(p + γ), with a behaviour probability of 1; the policy's own ratio is π/μ, without a clip. The
    paper has one demonstration in eight responses.
    """

    Config = LUFFYOptions
    config: LUFFYOptions

    @property
    def needs(self) -> Needs:
        return replace(super().needs, entropy_graph=self.config.entropy_coef > 0)

    def prepare(self, batch: Batch) -> Batch:
        batch = super().prepare(batch)
        return replace(batch, advantages=self.advantages(batch, batch.keep, scale_by_std=False))

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, mask = self.config, batch.mask
        p = policy.logp.masked_fill(~mask, 0.0).exp()
        own_ratio = log_ratio(policy.logp, batch.behaviour_logp, mask).exp()
        if batch.correction is not None:
            own_ratio = own_ratio * batch.correction
        ratio = torch.where(batch.online.unsqueeze(-1), own_ratio, p / (p + c.shaping))
        loss = aggregate(-batch.advantages * ratio, mask, "constant", c.constant_length)
        loss = loss * batch.sequence_share
        if c.entropy_coef:
            bonus = masked_mean(policy.entropy, mask) * batch.token_share
            loss = loss - c.entropy_coef * bonus
        return loss, {}


@dataclass
class CHORDOptions(Options):
    """Options of CHORD."""

    imitation_share: Share
    clip_low: BelowOne
    clip_high: PositiveFloat


class CHORD(DemonstrationMix):
    """CHORD-φ (Zhang et al., arXiv 2508.11408): (1 − μ) GRPO + μ mean(−sg[p (1 − p)] log π).

    GRPO over the policy's own responses, the weighted maximum likelihood over the demonstrations,
    each a mean over its own tokens. μ is constant.
    """

    Config = CHORDOptions
    config: CHORDOptions

    def prepare(self, batch: Batch) -> Batch:
        batch, share = super().prepare(batch), self.config.imitation_share
        kept = batch.kept_mask
        own, demonstrated = kept & batch.online.unsqueeze(-1), kept & ~batch.online.unsqueeze(-1)
        weights = torch.zeros_like(batch.mask, dtype=batch.rewards.dtype)
        for tokens, part in ((own, 1 - share), (demonstrated, share)):
            factor = part * int(kept.sum()) / max(1, int(tokens.sum()))
            weights = weights + factor * tokens.to(weights.dtype)
        advantages = self.advantages(batch, batch.keep & batch.online, scale_by_std=True)
        return replace(batch, advantages=advantages, weights=weights)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, mask = self.config, batch.mask
        logp = policy.logp.masked_fill(~mask, 0.0)
        p = logp.detach().exp()
        own = clipped_terms(
            logp,
            batch.behaviour_logp,
            batch.advantages,
            mask,
            c.clip_low,
            c.clip_high,
            batch.correction,
        )
        terms = torch.where(batch.online.unsqueeze(-1), own, -p * (1 - p) * logp)
        share, own_mask = batch.token_share, mask & batch.online.unsqueeze(-1)
        cut = clipped_tokens(logp.detach(), batch, c.clip_low, c.clip_high) & own_mask
        clip_share = masked_mean(cut.to(logp.dtype), mask) * share
        return masked_mean(batch.weights * terms, mask) * share, {"clip_share": clip_share}


@dataclass
class SRFTOptions(Options):
    """Options of SRFT."""

    demonstration_coef: NonNegativeFloat
    success_coef: NonNegativeFloat
    max_lag: NonNegativeInt


class SRFT(DemonstrationMix):
    """Single-stage supervised and reinforcement fine-tuning (Fu et al., arXiv 2506.19767).

    Demonstrations: 0.5 sg[e^−H] (−log π) − A p, with a behaviour probability of 1, A standardised
    in the group that they join, and no clip. The policy's own responses: 0.1 sg[e^H] (−log π) where
    accepted, log π where not; only fresh responses bound that from below. H is the response's mean
    entropy and the mean is over all tokens; the paper specifies neither.
    """

    Config = SRFTOptions
    config: SRFTOptions

    @property
    def needs(self) -> Needs:
        return replace(super().needs, behaviour="", max_lag=self.config.max_lag)

    def prepare(self, batch: Batch) -> Batch:
        batch = super().prepare(batch)
        return replace(batch, advantages=self.advantages(batch, batch.keep, scale_by_std=True))

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, mask = self.config, batch.mask
        logp = policy.logp.masked_fill(~mask, 0.0)
        length = mask.sum(-1, keepdim=True).clamp(min=1)
        entropy = masked_sum(policy.entropy.detach(), mask).unsqueeze(-1) / length
        imitation = -c.demonstration_coef * (-entropy).exp() * logp
        demonstration = imitation - batch.advantages * logp.exp()
        accepted = (batch.rewards >= self.reward_high).unsqueeze(-1)
        own = torch.where(accepted, -c.success_coef * entropy.exp() * logp, logp)
        terms = torch.where(batch.online.unsqueeze(-1), own, demonstration)
        return masked_mean(terms, mask) * batch.token_share, {}


class SFT(Algorithm):
    """Maximum likelihood of the accepted responses of any policy: a control.

    The reward only selects the responses to imitate; there is no reference and no critic. From the
    data set's own programs, SFT reaches what these programs alone teach. Only what an algorithm
    reaches beyond that, from the same programs, is the algorithm's merit.
    """

    Config = Options

    @property
    def needs(self) -> Needs:
        return Needs(off_policy=True, share="offline_share", best_reward="success")

    def prepare(self, batch: Batch) -> Batch:
        return replace(batch, keep=batch.keep & (batch.rewards >= self.reward_high))

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean of −log π over the kept responses' tokens."""
        return -masked_mean(policy.logp, batch.mask) * batch.token_share, {}


class RAFT(SFT):
    """SFT on the model's own accepted responses (RAFT, arXiv 2304.06767): the other control.

    The paper imitates the best of a prompt's responses; all accepted ones are equally good here.
    """

    @property
    def needs(self) -> Needs:
        return Needs(best_reward="success")
