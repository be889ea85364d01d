"""Other objectives with a critic: APA, VAPO and PPO-EWMA. PPO's own is `ppo.py`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from algorithms import lazy_torch as torch
from algorithms.base import Algorithm, Batch, Needs, Options, PolicyOutput
from algorithms.ppo import (
    PPO,
    CriticOptions,
    PPOConfig,
    Share,
    clipped_surrogate,
    gae,
    terminal_rewards,
    value_loss,
)
from algorithms.tensors import clip_share, log_ratio, masked_mean, masked_whiten

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class APAOptions(CriticOptions):
    """Options of APA."""

    beta: PositiveFloat = 0.1  # weight of the log-ratio against the advantage, the paper's λ
    value_coef: NonNegativeFloat = 0.5
    value_clip: PositiveFloat = 0.2  # ε_v, in units of reward
    gamma: Share = 1.0
    lam: Share = 0.95  # λ of GAE
    kl_coef: NonNegativeFloat = 0.02  # of the k1 penalty in the reward; 0 loads no reference


class APA(PPO):
    """Advantage-induced policy alignment (Zhu et al., arXiv 2306.02231): no ratio and no clip.

    (log π/μ − A/λ)² per token, A by GAE and whitened as in PPO: the policy is drawn to μ e^{A/λ}.
    """

    Config = APAOptions
    config: APAOptions

    @property
    def needs(self) -> Needs:
        reference, critic = self.config.kl_coef > 0, self.config.critic
        return Needs(reference=reference, critic=critic, critic_apart=True, behaviour=True)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, share, mask = self.config, batch.token_share, batch.mask
        error = log_ratio(policy.logp, batch.behaviour_logp, mask) - batch.advantages / c.beta
        squares = error.square()
        if batch.correction is not None:
            squares = squares * batch.correction
        value = value_loss(policy.values, batch.values, batch.returns, mask, clip=c.value_clip)
        loss = masked_mean(squares, mask) + c.value_coef * value
        return loss * share, {"ppo/value_loss": value.detach() * share}


@dataclass
class VAPOOptions(CriticOptions):
    """Options of VAPO."""

    critic_warmup: NonNegativeInt = 50  # first batches, of which the critic learns alone
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    clip_high: PositiveFloat = 0.28
    length_factor: PositiveFloat = 0.05  # α of the policy's λ = 1 − 1/(α T)
    imitation_coef: NonNegativeFloat = 0.1  # of the accepted responses' mean −log π
    value_coef: NonNegativeFloat = 0.5
    value_clip: PositiveFloat = 0.2  # ε_v, in units of reward


class VAPO(Algorithm):
    """Value-augmented PPO (Yue et al., arXiv 2504.05118).

    The critic is first fitted to the returns of the policy as it is (2503.01491), for 50 steps as
    public codes quote the paper. Two λ: 1 for what the critic learns, and 1 − 1/(α T) for the
    policy's advantage of a response of T tokens, 0 where that is negative (T < 20 for α = 0.05).
    Clip-higher, mean over tokens, no KL, and maximum likelihood of the accepted responses.
    """

    Config = VAPOOptions
    config: VAPOOptions

    @property
    def needs(self) -> Needs:
        c = self.config
        learns = {"critic": c.critic, "critic_apart": True, "critic_warmup": c.critic_warmup}
        return Needs(behaviour=True, best_reward=True, **learns)

    def prepare(self, batch: Batch) -> Batch:
        rewards, length = terminal_rewards(batch.rewards, batch.mask), batch.mask.sum(-1)
        lam = (1 - 1 / (self.config.length_factor * length.to(rewards.dtype))).clamp(min=0)
        advantages, _ = gae(rewards, batch.values, batch.mask, lam=lam)
        _, returns = gae(rewards, batch.values, batch.mask)
        live = batch.mask & batch.keep.unsqueeze(-1)
        imitated = live & (batch.rewards >= self.reward_high).unsqueeze(-1)
        weights = imitated.to(rewards.dtype) * (int(live.sum()) / max(1, int(imitated.sum())))
        advantages = masked_whiten(advantages, live)
        return replace(batch, advantages=advantages, returns=returns, weights=weights)

    def critic_loss(self, values: Tensor, batch: Batch) -> Tensor:
        c, rows = self.config, (batch.values, batch.returns, batch.mask)
        return c.value_coef * value_loss(values, *rows, clip=c.value_clip) * batch.token_share

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, share, mask = self.config, batch.token_share, batch.mask
        rows = (policy.logp, batch.behaviour_logp, batch.advantages, mask)
        clip = {"clip_low": c.clip_low, "clip_high": c.clip_high}
        surrogate = clipped_surrogate(*rows, **clip, weights=batch.correction)
        imitation = -masked_mean(batch.weights * policy.logp, mask)
        value = value_loss(policy.values, batch.values, batch.returns, mask, clip=c.value_clip)
        loss = surrogate + c.imitation_coef * imitation + c.value_coef * value
        return loss * share, {"ppo/value_loss": value.detach() * share}


@dataclass
class PPOEWMAOptions(PPOConfig):
    """Options of PPO-EWMA: PPO's, and"""

    # of the proximal policy, β_prox: it is 1/(1 − decay) − 1 steps old on average
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.889
    ratio_cap: PositiveFloat = 100.0  # of π/μ


class PPOEWMA(PPO):
    """PPO-EWMA (Hilton et al., arXiv 2110.00641, and its code).

    The clip is against a proximal policy, whose weights are an exponentially weighted average of
    the policy's over its steps, and what it leaves of the term is weighed by π_prox/μ. So neither
    the size of a batch nor the age of its writer says how far a step may go.
    """

    Config = PPOEWMAOptions
    config: PPOEWMAOptions

    @property
    def needs(self) -> Needs:
        return replace(super().needs, average=self.config.decay)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        least = policy.logp.detach() - math.log(self.config.ratio_cap)
        writer = torch.maximum(batch.behaviour_logp, least)
        weights = log_ratio(batch.proximal_logp, writer, batch.mask).exp()
        decoupled = replace(batch, behaviour_logp=batch.proximal_logp, correction=weights)
        return super().loss(policy, decoupled)


# REINFORCE++ (Hu, arXiv 2501.03262): PPO's clip without a critic and without groups. The return of
# a token is what is left of the reward after it: R − kl_coef Σ_{t' ≥ t} (log μ − log π_ref). It is
# whitened over all tokens of the batch, so that long responses move the mean, and the loss is the
# clipped surrogate, mean over tokens. The variant that first takes the group's mean off the reward
# (`-baseline`) is not offered.


@dataclass
class ReinforcePPOptions(Options):
    """Options of REINFORCE++."""

    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    clip_high: PositiveFloat = 0.2
    kl_coef: NonNegativeFloat = 0.01  # of k1, token by token in the reward; 0 loads no reference


class ReinforcePP(Algorithm):
    """Needs behaviour log-probs, and the reference where the KL has a weight."""

    Config = ReinforcePPOptions
    config: ReinforcePPOptions

    @property
    def needs(self) -> Needs:
        return Needs(reference=self.config.kl_coef > 0, behaviour=True)

    def prepare(self, batch: Batch) -> Batch:
        rewards = terminal_rewards(batch.rewards, batch.mask)
        if self.config.kl_coef > 0:
            k1 = log_ratio(batch.behaviour_logp, batch.ref_logp, batch.mask)
            rewards = rewards - self.config.kl_coef * k1
        _, returns = gae(rewards, torch.zeros_like(rewards), batch.mask)  # values of 0: to-go
        whitened = masked_whiten(returns, batch.mask & batch.keep.unsqueeze(-1))
        return replace(batch, advantages=whitened)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c = self.config
        clip = {"clip_low": c.clip_low, "clip_high": c.clip_high}
        rows = (policy.logp, batch.behaviour_logp, batch.advantages, batch.mask)
        loss = clipped_surrogate(*rows, **clip, weights=batch.correction)
        with torch.no_grad():
            cut = clip_share(*rows, c.clip_low, c.clip_high)
        return loss * batch.token_share, {"clip_share": cut * batch.token_share}
