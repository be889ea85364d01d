"""REINFORCE++ (Hu, arXiv 2501.03262): PPO's clip without a critic and without groups.

The return of a token is what is left of the reward after it: R − kl_coef Σ_{t' ≥ t} (log μ − log
π_ref). It is whitened over all tokens of the batch, so that long responses move the mean, and the
loss is the clipped surrogate, mean over tokens. The variant that first takes the group's mean off
the reward (`-baseline`) is not offered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat

from algorithms import lazy_torch as torch
from algorithms.base import Algorithm, Batch, Needs, Options, PolicyOutput
from algorithms.ppo import clipped_surrogate, gae, terminal_rewards
from algorithms.tensors import clip_share, log_ratio, masked_whiten

if TYPE_CHECKING:
    from torch import Tensor


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
