"""Objectives with PPO's critic (APA, VAPO, PF-PPO, PPO-EWMA, RTO) or another source of values.

PRIME has an implicit reward model. VinePPO (2410.01679) and Segment PO's chain (2505.23564) have
the policy continue each response from cuts, whose values are the continuations' mean rewards.
Segment PO's tree has them from responses that branch from one another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from algorithms.base import Algorithm, Batch, BelowOne, Needs, Options, PolicyOutput, Share, Steps
from algorithms.policy_gradient import leave_one_out
from algorithms.ppo import (
    PPO,
    PPOConfig,
    ValueObjective,
    ValueOptions,
    gae,
    monte_carlo_returns,
    step_gae,
    surrogate_and_clip_share,
    terminal_rewards,
    values_or_zeros,
    with_advantages,
)
from algorithms.tensors import (
    Tensor,
    group_ranks,
    kl,
    log_ratio,
    masked_mean,
    masked_whiten,
    tie_breakers,
    torch,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class APAOptions(ValueOptions):
    """Options of APA."""

    beta: PositiveFloat
    gamma: Share
    lam: Share
    kl_coef: NonNegativeFloat


class APA(ValueObjective):
    """Advantage-induced policy alignment (Zhu et al., arXiv 2306.02231): no ratio and no clip.

    (log π/μ − A/λ)² per token, A by GAE and whitened as in PPO: the policy is drawn to μ e^{A/λ}.
    """

    Config = APAOptions
    config: APAOptions

    @property
    def needs(self) -> Needs:
        return self.value_needs(reference=self.config.kl_coef > 0, behaviour="ratio")

    def prepare(self, batch: Batch) -> Batch:
        c = self.config
        return with_advantages(batch, gamma=c.gamma, lam=c.lam, kl_coef=c.kl_coef)

    def outcomes(self, batch: Batch) -> Tensor:
        return monte_carlo_returns(batch, gamma=self.config.gamma, kl_coef=self.config.kl_coef)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, share, mask = self.config, batch.token_share, batch.mask
        error = log_ratio(policy.logp, batch.behaviour_logp, mask) - batch.advantages / c.beta
        squares = error.square()
        if batch.correction is not None:
            squares = squares * batch.correction
        loss, metrics = self.with_value_loss(masked_mean(squares, mask), policy.values, batch)
        return loss * share, {name: metric * share for name, metric in metrics.items()}


@dataclass
class VAPOOptions(ValueOptions):
    """Options of VAPO."""

    critic_warmup: NonNegativeInt
    clip_low: BelowOne
    clip_high: PositiveFloat
    length_factor: PositiveFloat
    imitation_coef: NonNegativeFloat


def length_adaptive_lam(length: Tensor, length_factor: float) -> Tensor:
    """VAPO's λ = 1 − 1/(α T) of responses of T tokens, 0 where that is negative; elementwise.

    α = 0.05 was made for thousands of tokens: .996 at 5,000, .95 at 400, .23 at 26, 0 up to 20.
    """
    return (1 - 1 / (length_factor * length)).clamp(min=0)


class VAPO(ValueObjective):
    """Value-augmented PPO (Yue et al., arXiv 2504.05118).

    The critic is first fitted to the returns of the initial policy (2503.01491), for 50 steps as
    public codes quote the paper. There are two λ: 1 for the critic's returns, and 1 − 1/(α T) for
    the policy's advantages of a response of T tokens, 0 if that is negative (T < 20 for α = 0.05).
    Clip-higher, mean over tokens, no KL, and maximum likelihood of the accepted responses.
    """

    Config = VAPOOptions
    config: VAPOOptions

    @property
    def needs(self) -> Needs:
        return self.value_needs(behaviour="ratio", best_reward="success")

    def prepare(self, batch: Batch) -> Batch:
        rewards, length = terminal_rewards(batch.rewards, batch.mask), batch.mask.sum(-1)
        values = values_or_zeros(batch, rewards)
        lam = length_adaptive_lam(length.to(rewards.dtype), self.config.length_factor)
        advantages, _ = gae(rewards, values, batch.mask, gamma=1.0, lam=lam)
        _, returns = gae(rewards, values, batch.mask, gamma=1.0, lam=1.0)
        kept = batch.kept_mask
        imitated = kept & (batch.rewards >= self.reward_high).unsqueeze(-1)
        weights = imitated.to(rewards.dtype) * (int(kept.sum()) / max(1, int(imitated.sum())))
        advantages = masked_whiten(advantages, kept)
        return replace(batch, advantages=advantages, returns=returns, weights=weights)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, share, mask = self.config, batch.token_share, batch.mask
        surrogate, cut = surrogate_and_clip_share(policy.logp, batch, c)
        imitation = -masked_mean(batch.weights * policy.logp, mask)
        loss = surrogate + c.imitation_coef * imitation
        loss, metrics = self.with_value_loss(loss, policy.values, batch)
        metrics = metrics | {"clip_share": cut}
        return loss * share, {name: metric * share for name, metric in metrics.items()}


class PFPPO(PPO):
    """PF-PPO (policy filtration, arXiv 2409.06957): PPO on each prompt's best and worst response.

    The paper's BW filter, per prompt as in the authors' code. If all responses to a prompt are
    equally good, one of them is used.
    """

    @property
    def needs(self) -> Needs:
        # The group decides which rows train the critic, so it must wait for the prepared batch.
        return replace(super().needs, groups=2, critic_apart=False)

    def prepare(self, batch: Batch) -> Batch:
        shape = (-1, batch.group_size)
        rewards, keep = batch.rewards.view(shape), batch.keep.view(shape)
        tie_breaker = tie_breakers(batch.behaviour_logp, batch.mask).view(shape)
        best = group_ranks(rewards, tie_breaker, keep) == 0
        worst = group_ranks(-rewards, tie_breaker, keep) == 0
        return super().prepare(replace(batch, keep=batch.keep & (best | worst).flatten()))


@dataclass
class PPOEWMAOptions(PPOConfig):
    """Options of PPO-EWMA: PPO's, and"""

    decay: Annotated[float, Field(ge=0, lt=1)]
    ratio_cap: PositiveFloat


class PPOEWMA(PPO):
    """PPO-EWMA (Hilton et al., arXiv 2110.00641, and its code).

    The clip is against a proximal policy, whose weights are an exponentially weighted average of
    the policy's over its steps. The clipped term is then multiplied by π_prox/μ. So the size of a
    step depends neither on the batch size nor on staleness.
    """

    Config = PPOEWMAOptions
    config: PPOEWMAOptions

    @property
    def needs(self) -> Needs:
        return replace(super().needs, behaviour="own", copies=("average",))

    def before_step(self, batch: Batch, logp: Callable[[str], Tensor]) -> Batch:
        return replace(batch, earlier_logp=logp("average"))

    def after_step(self, average: Callable[[str, float], None]) -> None:
        average("average", self.config.decay)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        lowest = policy.logp.detach() - math.log(self.config.ratio_cap)
        capped = torch.maximum(batch.behaviour_logp, lowest)
        weights = log_ratio(batch.earlier_logp, capped, batch.mask).exp()
        decoupled = replace(batch, behaviour_logp=batch.earlier_logp, correction=weights)
        return super().loss(policy, decoupled)


@dataclass
class RTOOptions(PPOConfig):
    """Options of RTO: PPO's, and"""

    dpo_model: str | None
    dpo_beta: PositiveFloat
    reward_bound: PositiveFloat


class RTO(PPO):
    """Reinforced token optimisation (Zhong et al., arXiv 2404.18922, and its code).

    PPO with a reward for each token beside the verdict's: β log π_dpo/π_ref, within ±reward_bound.
    π_dpo is a model that learned by DPO from the same reference. If it is the reference: PPO.
    """

    Config = RTOOptions
    config: RTOOptions

    @property
    def needs(self) -> Needs:
        weights = self.config.dpo_model or ""
        return replace(super().needs, reference=True, copies=("dpo",), copy_of=weights)

    def before_batch(
        self, batch: Batch, logp: Callable[[str], Tensor], keep: Callable[[str], None]
    ) -> Batch:
        return replace(batch, earlier_logp=logp("dpo"))

    def token_rewards(self, batch: Batch) -> Tensor:
        """Of the DPO model, (batch, time)."""
        bound = self.config.reward_bound
        ratio = log_ratio(batch.earlier_logp, batch.ref_logp, batch.mask)
        return (self.config.dpo_beta * ratio).clamp(-bound, bound)

    @property
    def _return_options(self) -> dict[str, Any]:
        return super()._return_options | {"added": self.token_rewards}


@dataclass
class PRIMEOptions(Options):
    """Options of PRIME."""

    beta: PositiveFloat
    reward_learning_rate: PositiveFloat | None
    clip_low: BelowOne
    clip_high: PositiveFloat

    @property
    def critic_rate(self) -> float:
        """The reward model's learning rate, resolved."""
        return self.reward_learning_rate or 2 * self.learning_rate


class PRIME(Algorithm):
    """PRIME (Cui et al., arXiv 2502.01456) with implicit process rewards (2412.01981).

    A token's reward is r_t = β log π_φ/π_ref. π_φ begins as the initial policy and learns online:
    Σ_t r_t is its logit of success, trained by cross-entropy on the verdict. The advantage of a
    token is the sum of r_t from it on, each less the others' mean token reward, plus RLOO's of the
    verdict. The loss is the clipped surrogate, mean over tokens.

    Rewards are those before π_φ's step on the batch, as in the authors' script (`update=after`).
    Formulas as in the authors' code and model card. What only the code does is left out: it gives
    the last token no reward, scales process rewards by the batch's greatest return, whitens the
    advantages, and adds (r_t − the response's own mean)/(G − 1) to each r_t.
    """

    Config = PRIMEOptions
    config: PRIMEOptions

    @property
    def needs(self) -> Needs:
        return Needs(
            reference=True,
            critic="log_probs",
            critic_apart=True,
            groups=2,
            behaviour="ratio",
            best_reward="success",
        )

    def token_rewards(self, logp: Tensor, batch: Batch) -> Tensor:
        """r_t (batch, time) from log π_φ, 0 where masked out."""
        mask = batch.mask
        return self.config.beta * (
            logp.masked_fill(~mask, 0.0) - batch.ref_logp.masked_fill(~mask, 0.0)
        )

    def success(self, batch: Batch) -> Tensor:
        return (batch.rewards >= self.reward_high).to(batch.rewards.dtype)

    def prepare(self, batch: Batch) -> Batch:
        rewards = self.token_rewards(batch.values, batch)
        mean = rewards.sum(-1) / batch.mask.sum(-1).clamp(min=1)
        others = mean - leave_one_out(batch, mean)
        process = (rewards - others.unsqueeze(-1)).masked_fill(~batch.mask, 0.0)
        returns = process.flip(-1).cumsum(-1).flip(-1)
        outcome = leave_one_out(batch, batch.rewards)
        return replace(batch, advantages=returns + outcome.unsqueeze(-1))

    def values_and_outcomes(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """π_φ's probability of success before its step, and success."""
        return self.token_rewards(batch.values, batch).sum(-1).sigmoid(), self.success(batch)

    def critic_loss(self, values: Tensor, batch: Batch) -> Tensor:
        logits = self.token_rewards(values, batch).sum(-1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, self.success(batch))
        return loss * batch.sequence_share

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        surrogate, cut = surrogate_and_clip_share(policy.logp, batch, self.config)
        entropy, share = self.critic_loss(policy.values, batch), batch.token_share
        metrics = {"prime/cross_entropy": entropy.detach(), "clip_share": cut * share}
        return surrogate * share + entropy, metrics


UNLIKELY = 0.9  # a token of a lower probability leaves the policy a choice (Segment PO)
MOST_KL = 10.0  # a token, in VinePPO's code


@dataclass
class SegmentOptions(Options):
    """Options of the loss of VinePPO and Segment PO."""

    only_unlikely: bool
    clip_low: BelowOne
    clip_high: PositiveFloat
    kl_coef: NonNegativeFloat


@dataclass
class StepValueOptions(SegmentOptions):
    """Options of VinePPO and of Segment PO's chain: those of the loss, and"""

    cut: Literal["token", "line", "unlikely"]
    cut_every: PositiveInt
    continuations: PositiveInt


@dataclass
class SegmentTreeOptions(SegmentOptions):
    """Options of Segment PO's tree: those of the loss, and"""

    branches: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1)]
    segment: PositiveInt


def step_advantages(batch: Batch) -> Tensor:
    """Each token's A = V(next cut) − V(its step's cut), (batch, time); 0 before the first cut."""
    starts = batch.mask & ~batch.step_values.isnan()
    rewards = terminal_rewards(batch.rewards, batch.mask)
    return step_gae(rewards, batch.step_values, batch.mask, starts, lam=0.0)[0]


class StepValues(Algorithm):
    """VinePPO (Kazemnejad et al., arXiv 2410.01679); with its options also Segment PO's chain.

    PPO's clipped loss without a critic. All tokens of a step have its advantage, A = V(next cut) −
    V(this cut), and A = r − V of the last step. VinePPO's steps are lines, and the first cut is the
    prompt. Segment PO's chain (Guo et al., arXiv 2505.23564; one of several objectives called SPO)
    cuts before every fifth unlikely token and learns from unlikely tokens alone; what comes before
    its first cut has no advantage.

    Both whiten advantages over the tokens of the loss, and have the KL to the reference in it: k3,
    summed over a response's tokens of the loss, the mean over responses. Formulas and settings are
    those of the authors' code (McGill-NLP/VinePPO, AIFrameResearch/SPO). Our whitening divides by
    n, theirs by n − 1; a token's k3 is at most 10, as in VinePPO's.
    """

    Config: type[SegmentOptions] = StepValueOptions
    config: Any

    @property
    def steps(self) -> Steps:
        """Where values come from."""
        return Steps(self.config.cut, self.config.cut_every, self.config.continuations)

    @property
    def needs(self) -> Needs:
        reference = self.config.kl_coef > 0
        return Needs(reference=reference, behaviour="ratio", step_values=self.steps)

    def learned(self, batch: Batch, advantages: Tensor) -> Tensor:
        """The tokens that are learned from, (batch, time) bool."""
        if self.config.only_unlikely:
            return batch.kept_mask & (batch.rollout_logp < math.log(UNLIKELY))
        return batch.kept_mask

    def prepare(self, batch: Batch) -> Batch:
        kept, advantages = batch.kept_mask, step_advantages(batch)
        learned = self.learned(batch, advantages)
        advantages = masked_whiten(advantages, learned)
        # a mean over the tokens that are learned from, as a weighted mean over all
        weights = learned.to(advantages.dtype) * (int(kept.sum()) / max(1, int(learned.sum())))
        return replace(batch, advantages=advantages, weights=weights)

    def values_and_outcomes(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Of all cuts."""
        starts = batch.mask & ~batch.step_values.isnan()
        outcomes = batch.rewards.unsqueeze(-1).expand_as(batch.step_values)
        return batch.step_values[starts], outcomes[starts]

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, share, mask = self.config, batch.token_share, batch.mask
        correction = batch.weights if batch.correction is None else batch.weights * batch.correction
        weighed = replace(batch, correction=correction)
        loss, cut = surrogate_and_clip_share(policy.logp, weighed, c)
        penalty = loss.new_zeros(())
        if c.kl_coef > 0:
            logp, ref_logp = (x.masked_fill(~mask, 0.0) for x in (policy.logp, batch.ref_logp))
            distance = kl(logp, ref_logp, "k3").clamp(max=MOST_KL)
            of_responses = (distance * (batch.weights > 0)).sum(-1)
            penalty = c.kl_coef * of_responses.mean() * batch.sequence_share
        return loss * share + penalty, {"clip_share": cut * share}


class SegmentTree(StepValues):
    """Segment PO's tree (Guo et al., arXiv 2505.23564): the group's responses branch from others.

    A segment's advantage is V(its end) − V(its begin), where the value of a node is the mean of its
    children's and of a leaf its reward: so siblings are compared with their mean. Each segment is
    learned from once, and not at all where its advantage is 0. Otherwise the chain's loss. As in
    the authors' code (adv_method=rloo), but for its buffer, which spreads a tree's segments over
    some iterations, and for the KL's mean, which is over segments there.
    """

    Config = SegmentTreeOptions

    @property
    def steps(self) -> Steps:
        return Steps("tree", self.config.segment, 0, tuple(self.config.branches))

    def learned(self, batch: Batch, advantages: Tensor) -> Tensor:
        return super().learned(batch, advantages) & (advantages != 0)

    def values_and_outcomes(self, batch: Batch) -> None:
        """None: a node's value has the response's own reward in it."""
