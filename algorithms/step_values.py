"""PPO's clipped loss with Monte-Carlo values of a response's steps: VinePPO and Segment PO's chain.

VinePPO (Kazemnejad et al., arXiv 2410.01679) cuts a response into steps and has the policy continue
it from each cut. The mean reward of the continuations is the value of the state there, so no critic
is learned. All tokens of a step have its advantage, A = V(next cut) − V(this cut), and A = r − V of
the last step. The first cut is the prompt.

Segment PO's chain (Guo et al., arXiv 2505.23564; one of several objectives called SPO) cuts before
unlikely tokens, of a probability below UNLIKELY, at every fifth of them, and learns from unlikely
tokens alone: the others leave the policy no choice. What comes before the first cut has no
advantage.

Both whiten advantages over the tokens of the loss, and have a KL to the reference in the loss (k3,
at most MOST_KL a token). Formula and settings as in the authors' code (McGill-NLP/VinePPO,
AIFrameResearch/SPO); our whitening divides by n, theirs by n − 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from algorithms.base import Algorithm, Batch, BelowOne, Needs, Options, PolicyOutput, Steps
from algorithms.ppo import step_gae, surrogate_and_clip_share, terminal_rewards
from algorithms.tensors import Tensor, kl, masked_mean, masked_whiten

UNLIKELY = 0.9  # the paper's bound
MOST_KL = 10.0


@dataclass
class StepValueOptions(Options):
    """Options of VinePPO and of Segment PO's chain."""

    cut: Literal["token", "line", "unlikely"]
    cut_every: PositiveInt
    continuations: PositiveInt
    only_unlikely: bool
    clip_low: BelowOne
    clip_high: PositiveFloat
    kl_coef: NonNegativeFloat


def step_advantages(batch: Batch) -> Tensor:
    """Each token's A = V(next cut) − V(its step's cut), (batch, time); 0 before the first cut."""
    starts = batch.mask & ~batch.step_values.isnan()
    rewards = terminal_rewards(batch.rewards, batch.mask)
    return step_gae(rewards, batch.step_values, batch.mask, starts, lam=0.0)[0]


class StepValues(Algorithm):
    """VinePPO; with its options also Segment PO's chain."""

    Config = StepValueOptions
    config: StepValueOptions

    @property
    def needs(self) -> Needs:
        c = self.config
        steps = Steps(c.cut, c.cut_every, c.continuations)
        return Needs(reference=c.kl_coef > 0, behaviour="ratio", step_values=steps)

    def prepare(self, batch: Batch) -> Batch:
        learned = kept = batch.kept_mask
        if self.config.only_unlikely:
            learned = kept & (batch.rollout_logp < math.log(UNLIKELY))
        advantages = masked_whiten(step_advantages(batch), learned)
        # a mean over the tokens that are learned from, as a weighted mean over all
        weights = learned.to(advantages.dtype) * (int(kept.sum()) / max(1, int(learned.sum())))
        return replace(batch, advantages=advantages, weights=weights)

    def values_and_outcomes(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of all cuts."""
        starts = batch.mask & ~batch.step_values.isnan()
        outcomes = batch.rewards.unsqueeze(-1).expand_as(batch.step_values)
        return batch.step_values[starts], outcomes[starts]

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, share, mask = self.config, batch.token_share, batch.mask
        correction = batch.weights if batch.correction is None else batch.weights * batch.correction
        weighed = replace(batch, correction=correction)
        loss, cut = surrogate_and_clip_share(policy.logp, weighed, c)
        if c.kl_coef > 0:
            logp, ref_logp = (x.masked_fill(~mask, 0.0) for x in (policy.logp, batch.ref_logp))
            distance = kl(logp, ref_logp, "k3").clamp(max=MOST_KL)
            loss = loss + c.kl_coef * masked_mean(batch.weights * distance, mask)
        return loss * share, {"clip_share": cut * share}
