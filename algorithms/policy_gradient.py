"""REINFORCE over groups of responses: −w A log π per token, with each paper's A and w.

`GroupReinforce` is their common part: an advantage for each response, usually from its group's
rewards, the same for all its tokens, and the mean over the batch. Below it, one class for each
objective defines the advantage and the terms. MaxRL weighs a prompt by 1/p. max@k, PKPO and Pass@k
training are for the best of k responses instead of their mean, under the clipped surrogate.
`ratio_rules.py` has other rules for the ratio.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from algorithms.base import Algorithm, Batch, BelowOne, Needs, Options, PolicyOutput
from algorithms.ppo import monte_carlo_returns, surrogate_and_clip_share
from algorithms.tensors import (
    Aggregate,
    Tensor,
    aggregate,
    clipped_terms,
    group_count,
    group_log_mean_exp,
    group_mean,
    group_ranks,
    is_clipped,
    log_ratio,
    masked_mean,
    masked_sum,
    masked_whiten,
    torch,
)


@dataclass
class GroupOptions(Options):
    """Common options."""

    aggregate: Aggregate
    constant_length: PositiveInt


class GroupReinforce(Algorithm):
    """Subclasses define `advantages` of responses and may override the loss's `terms` of tokens."""

    Config: type[Options] = GroupOptions
    config: GroupOptions

    @abstractmethod
    def advantages(self, batch: Batch) -> Tensor:
        """Advantages of whole responses → (batch,)."""

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        """The loss's terms → (batch, time); logp is the policy's, 0 where masked out."""
        return -batch.advantages * logp

    def cut(self, logp: Tensor, batch: Batch) -> Tensor | None:
        """Bool (batch, time): tokens whose gradient a bound of the ratio removes or limits.

        None if the objective has no such bound.
        """
        return None

    def prepare(self, batch: Batch) -> Batch:
        advantages = self.advantages(batch).unsqueeze(-1).expand(batch.mask.shape)
        return replace(batch, advantages=advantages)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, mask = self.config, batch.mask
        share = batch.token_share if c.aggregate == "token_mean" else batch.sequence_share
        logp = policy.logp.masked_fill(~mask, 0.0)
        terms = self.terms(logp, batch)
        if batch.correction is not None:
            terms = terms * batch.correction.masked_fill(~mask, 0.0)
        loss = aggregate(terms, mask, c.aggregate, c.constant_length) * share
        cut = self.cut(logp.detach(), batch)
        if cut is None:
            return loss, {}
        return loss, {"clip_share": masked_mean(cut.to(terms.dtype), mask) * batch.token_share}


def clipped_tokens(logp: Tensor, batch: Batch, low: float, high: float) -> Tensor:
    """Bool (batch, time): tokens whose gradient PPO's clip removes."""
    ratio = log_ratio(logp, batch.behaviour_logp, batch.mask).exp()
    return is_clipped(ratio, batch.advantages, 1 - low, 1 + high)


def centred(batch: Batch, rewards: Tensor) -> Tensor:
    """Rewards less their group's mean → (batch,)."""
    size = batch.group_size
    return rewards - group_mean(rewards, batch.keep, size).repeat_interleave(size)


def leave_one_out(batch: Batch, rewards: Tensor) -> Tensor:
    """Rewards less the mean of their group's others → (batch,); 0 without others."""
    count = group_count(batch.keep, batch.group_size, rewards.dtype)
    return centred(batch, rewards) * count / (count - 1).clamp(min=1)


@dataclass
class RLOOOptions(GroupOptions):
    """Options of RLOO."""

    kl_coef: NonNegativeFloat
    max_lag: NonNegativeInt


class RLOO(GroupReinforce):
    """REINFORCE leave-one-out (Ahmadian et al., arXiv 2402.14740).

    A_i = R'_i − the mean of the group's others, R' = R − kl_coef Σ_t (log μ − log π_ref), detached.
    """

    Config = RLOOOptions
    config: RLOOOptions

    @property
    def needs(self) -> Needs:
        with_kl = self.config.kl_coef > 0
        return Needs(
            reference=with_kl,
            groups=2,
            behaviour="own" if with_kl else "",
            max_lag=self.config.max_lag,
        )

    def advantages(self, batch: Batch) -> Tensor:
        rewards = batch.rewards
        if self.config.kl_coef > 0:
            k1 = masked_sum(batch.behaviour_logp - batch.ref_logp, batch.mask)
            rewards = rewards - self.config.kl_coef * k1
        return leave_one_out(batch, rewards)


@dataclass
class ReinforcePPOptions(Options):
    """Options of REINFORCE++."""

    clip_low: BelowOne
    clip_high: PositiveFloat
    kl_coef: NonNegativeFloat


class ReinforcePP(Algorithm):
    """REINFORCE++ (Hu, arXiv 2501.03262): PPO's clip without a critic and without groups.

    A token's return is the reward that follows it: R − kl_coef Σ_{t' ≥ t} (log μ − log π_ref). It
    is whitened over all tokens of the batch, so that long responses move the mean. The loss is the
    clipped surrogate, mean over tokens. The variant that first subtracts the group's mean reward
    (`-baseline`) is not offered.
    """

    Config = ReinforcePPOptions
    config: ReinforcePPOptions

    @property
    def needs(self) -> Needs:
        return Needs(reference=self.config.kl_coef > 0, behaviour="ratio")

    def prepare(self, batch: Batch) -> Batch:
        returns = monte_carlo_returns(batch, gamma=1.0, kl_coef=self.config.kl_coef)
        return replace(batch, advantages=masked_whiten(returns, batch.kept_mask))

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss, cut = surrogate_and_clip_share(policy.logp, batch, self.config)
        return loss * batch.token_share, {"clip_share": cut * batch.token_share}


@dataclass
class OPMDOptions(GroupOptions):
    """Options of OPMD."""

    tau: PositiveFloat
    baseline: Literal["mean", "log_mean_exp"]


class OPMD(GroupReinforce):
    """Online policy mirror descent, the simple form (arXiv 2509.24203, and Trinity-RFT's code).

    −(R − V) log π / (1 + τ): no ratio and no clip, so it may learn from responses of any policy.
    """

    Config = OPMDOptions
    config: OPMDOptions

    @property
    def needs(self) -> Needs:
        return Needs(groups=2, off_policy=True)

    def advantages(self, batch: Batch) -> Tensor:
        tau, size = self.config.tau, batch.group_size
        if self.config.baseline == "mean":
            return centred(batch, batch.rewards)
        value = tau * group_log_mean_exp(batch.rewards / tau, batch.keep, size)
        value = value.repeat_interleave(size).masked_fill(~batch.keep, 0.0)
        return batch.rewards - value

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        return super().terms(logp, batch) / (1 + self.config.tau)


@dataclass
class AsymREOptions(GroupOptions):
    """Options of AsymRE."""

    delta_v: float


class AsymRE(GroupReinforce):
    """Asymmetric REINFORCE (arXiv 2506.20520): A = R − (mean + δV), no ratio, any policy's data.

    δV < 0 adds |δV| of maximum likelihood of every response: failures of a failed group too.
    """

    Config = AsymREOptions
    config: AsymREOptions

    @property
    def needs(self) -> Needs:
        return Needs(groups=2, off_policy=True)

    def advantages(self, batch: Batch) -> Tensor:
        return centred(batch, batch.rewards) - self.config.delta_v


# log π(y)/μ(y) of fresh responses is not quite 0: the engine rounds otherwise than the learner.
# TOPR's bound is at 0, so half of the failures would count as bounded.
ROUNDING = 1e-3


@dataclass
class TOPROptions(GroupOptions):
    """Options of TOPR."""

    baseline: float


class TOPR(GroupReinforce):
    """Tapered off-policy REINFORCE (Le Roux et al., arXiv 2503.14286).

    −sg[a] (R − c) log π(y): a = 1 where R ≥ c, as in supervised learning, else the whole response's
    min(π/μ, 1). The paper's rewards are −1 and 1 with c = 0: half of that is 0 and 1 with c = 0.5.
    With c = 0 failures weigh nothing. (The sequence ratio was read in a summary of the paper; two
    public codes take token ratios.) A failure without known rollout log-probs is left out.
    """

    Config = TOPROptions
    config: TOPROptions

    @property
    def needs(self) -> Needs:
        return Needs(behaviour="own", off_policy=True)

    def prepare(self, batch: Batch) -> Batch:
        batch = super().prepare(batch)
        return replace(batch, keep=batch.keep & (batch.online | (batch.advantages[:, 0] >= 0)))

    def advantages(self, batch: Batch) -> Tensor:
        return batch.rewards - self.config.baseline

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        taper = self.log_sequence_ratio(logp.detach(), batch).clamp(max=0).exp()
        return -torch.where(batch.advantages >= 0, 1.0, taper) * batch.advantages * logp

    def cut(self, logp: Tensor, batch: Batch) -> Tensor:
        return (batch.advantages < 0) & (self.log_sequence_ratio(logp, batch) > ROUNDING)

    def log_sequence_ratio(self, logp: Tensor, batch: Batch) -> Tensor:
        """log π(y)/μ(y) → (batch, 1)."""
        return log_ratio(logp, batch.behaviour_logp, batch.mask).sum(-1, keepdim=True)


@dataclass
class ClippedOptions(GroupOptions):
    """Bounds of the ratio, 1 − clip_low and 1 + clip_high."""

    clip_low: BelowOne
    clip_high: PositiveFloat


class Clipped(GroupReinforce):
    """Under PPO's clip; its options have the bounds."""

    Config: type[Options] = ClippedOptions
    config: Any

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        low, high = self.config.clip_low, self.config.clip_high
        return clipped_terms(logp, batch.behaviour_logp, batch.advantages, batch.mask, low, high)

    def cut(self, logp: Tensor, batch: Batch) -> Tensor:
        return clipped_tokens(logp, batch, self.config.clip_low, self.config.clip_high)


class MaxRL(Clipped):
    """Maximum likelihood reinforcement learning (arXiv 2602.02710): A = (a − p̂)/p̂.

    a is 1 for an accepted response, else 0; p̂ is the group's mean of a. A is 0 in a group without
    success. Over many responses it is the gradient of log p(success), where RLOO's is of p: a
    prompt weighs 1/p. (Formula as in three copies of the authors' function.)
    """

    @property
    def needs(self) -> Needs:
        return Needs(groups=2, behaviour="ratio", best_reward="success")

    def advantages(self, batch: Batch) -> Tensor:
        accepted = (batch.rewards >= self.reward_high).to(batch.rewards.dtype)
        rate = group_mean(accepted, batch.keep, batch.group_size)
        rate = rate.repeat_interleave(batch.group_size)
        return torch.where(rate > 0, (accepted - rate) / rate.clamp(min=1e-6), 0.0)


@dataclass
class WReinforceOptions(ClippedOptions):
    """Options of W-REINFORCE and NSR."""

    success_weight: NonNegativeFloat


class WReinforce(Clipped):
    """W-REINFORCE and negative sample reinforcement (Zhu et al., arXiv 2506.01347).

    A = λ for an accepted response, −1 for one that failed; no baseline and no group. NSR is λ = 0.
    (Formula read in a summary of the paper. Its code has PPO's clip, idle on fresh responses.)
    """

    Config = WReinforceOptions
    config: WReinforceOptions

    @property
    def needs(self) -> Needs:
        return Needs(behaviour="ratio", best_reward="success")

    def advantages(self, batch: Batch) -> Tensor:
        accepted = (batch.rewards >= self.reward_high).to(batch.rewards.dtype)
        return (self.config.success_weight + 1) * accepted - 1


@dataclass
class PassAtKOptions(ClippedOptions):
    """Options of max@k, PKPO and Pass@k training."""

    k: PositiveInt


class MaxAtK(Clipped):
    """max@k (arXiv 2510.23393): the gradient of the expected best reward of k, unbiased.

    A_i = Σ over the draws of k responses that contain i of (the draw's best − its best without i)
    / C(n, k), after Walder and Karkhanis (2505.15201): only draws with i as their best count. It is
    PKPO's where rewards are 0 and 1, and takes any others. With k = 1 it is REINFORCE on R/n.
    """

    Config = PassAtKOptions
    config: PassAtKOptions

    @property
    def needs(self) -> Needs:
        return Needs(groups=max(2, self.config.k), behaviour="ratio")

    def advantages(self, batch: Batch) -> Tensor:
        k, size = self.config.k, batch.group_size
        rewards, keep = batch.rewards.view(-1, size), batch.keep.view(-1, size)
        n = keep.sum(-1, keepdim=True)
        draws = torch.tensor([math.comb(i, k) for i in range(size + 1)]).to(rewards)[n]
        if k == 1:
            return (rewards / draws.clamp(min=1)).flatten()
        # with l as the best of the others, k − 2 more come from the `below` that rank under l
        rank = group_ranks(rewards, torch.zeros_like(rewards), keep)
        below = (n - 1 - rank).clamp(min=0)
        others = torch.tensor([math.comb(i, k - 2) for i in range(size + 1)]).to(rewards)[below]
        gain = (rewards.unsqueeze(-1) - rewards.unsqueeze(-2)).clamp(min=0)  # of i (rows) over l
        gain = gain.masked_fill(~keep.unsqueeze(-2), 0.0)
        return ((gain * others.unsqueeze(-2)).sum(-1) / draws.clamp(min=1)).flatten()


# Advantages for pass@k. Of a prompt's n responses c are accepted (they have the best reward).
# q(n, c, k) = 1 − C(n − c, k) / C(n, k) is the unbiased pass@k; each objective divides it among the
# responses.


def miss_probability(n: Tensor, wrong: Tensor, k: int) -> Tensor:
    """C(wrong, k) / C(n, k): none of k drawn from n is right; 0 where wrong < k. Elementwise."""
    probability = torch.ones_like(n)
    for i in range(k):
        probability = probability * (wrong - i).clamp(min=0) / (n - i).clamp(min=1)
    return probability


def pass_at_k_rewards(accepted: Tensor, n: Tensor, k: int, c: Tensor) -> Tensor:
    """Each response's part in its group's pass@k (2505.15201, theorem 1), all (batch,).

    k/n for an accepted response, else (k/n) q(n − 1, c, k − 1): they sum to k q(n, c, k).
    """
    others = 1 - miss_probability(n - 1, n - 1 - c, k - 1)
    return k / n.clamp(min=1) * torch.where(accepted, 1.0, others)


class PassAtK(Clipped):
    """Needs groups of at least k and behaviour log-probs."""

    Config = PassAtKOptions
    config: PassAtKOptions

    @property
    def needs(self) -> Needs:
        least = max(2, self.config.k)
        return Needs(groups=least, behaviour="ratio", best_reward="success")

    def counts(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """(accepted bool, the group's n, the group's c), all (batch,), of kept rows."""
        accepted = (batch.rewards >= self.reward_high) & batch.keep
        size, dtype = batch.group_size, batch.rewards.dtype
        return accepted, group_count(batch.keep, size, dtype), group_count(accepted, size, dtype)


class PKPO(PassAtK):
    """Pass-at-k policy optimisation (Walder and Karkhanis, arXiv 2505.15201), leave-one-out − 1.

    An accepted response has C(n − c, k − 1) / C(n, k), the probability that it is the only right
    one; the others have 0: the paper's estimator of least variance. With k = 1 it is REINFORCE on
    R/n. The paper sums these over a prompt's responses; the mean over them here is 1/n of that.
    """

    def advantages(self, batch: Batch) -> Tensor:
        k = self.config.k
        accepted, n, c = self.counts(batch)
        only_right = miss_probability(n, n - c, k - 1) * k / (n - k + 1).clamp(min=1)
        return torch.where(accepted & (n >= k), only_right, 0.0)


class PassK(PassAtK):
    """Pass@k training (Chen et al., arXiv 2508.10751): the pass@k rewards, standardised.

    With q = q(n, c, k) and s = sqrt(q (1 − q)): (1 − q)/s for an accepted response, else
    (1 − q − C(n − c − 1, k − 1)/C(n − 1, k − 1))/s; 0 where q is 0 or 1. k = 1 is GRPO with the
    population's std.
    """

    def advantages(self, batch: Batch) -> Tensor:
        k = self.config.k
        accepted, n, c = self.counts(batch)
        q = 1 - miss_probability(n, n - c, k)
        s = (q * (1 - q)).clamp(min=0).sqrt()
        part = centred(batch, pass_at_k_rewards(accepted, n, k, c))
        return torch.where((s > 0) & (n >= k), part * n / (k * s), 0.0)
