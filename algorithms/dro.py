"""DRO-V: direct reward optimisation with a value (Richemond et al., arXiv 2405.19107).

½ (R − V(x) − β h)², h the response's Σ log π/π_ref: at the optimum of E[R] − β KL(π ‖ π_ref) it is
zero for every response, whoever wrote it. V is learnt from the same residual: the critic's value at
the prompt's last token, which sees no response. The policy's part is divided by β, so that β does
not set its step. (Formulas as two public codes agree on them; the paper's text was not read.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import NonNegativeFloat, PositiveFloat

from algorithms.base import Algorithm, Batch, Needs, PolicyOutput
from algorithms.ppo import CriticOptions
from algorithms.tensors import masked_sum

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class DROOptions(CriticOptions):
    """Options of DRO-V."""

    beta: PositiveFloat = 1.0  # weight of the log-ratio, in units of reward; the paper's τ
    value_coef: NonNegativeFloat = 1.0  # weight of the value's part


def prompt_value(values: Tensor, mask: Tensor) -> Tensor:
    """The value before the first response token: (batch, time) twice → (batch,)."""
    first = mask & (mask.cumsum(-1) == 1)
    return masked_sum(values, first)


class DRO(Algorithm):
    """Needs the reference and a critic."""

    Config = DROOptions
    config: DROOptions

    @property
    def needs(self) -> Needs:
        return Needs(reference=True, critic=self.config.critic, off_policy=True)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, share = self.config, batch.sequence_share
        h = masked_sum(policy.logp, batch.mask) - masked_sum(batch.ref_logp, batch.mask)
        value = prompt_value(policy.values, batch.mask)
        of_policy = 0.5 * (batch.rewards - value.detach() - c.beta * h).square().mean() / c.beta
        of_value = 0.5 * (batch.rewards - value - c.beta * h.detach()).square().mean()
        metrics = {
            "dro/value_loss": of_value.detach() * share,
            "dro/value_mean": value.detach().mean() * share,
        }
        return (of_policy + c.value_coef * of_value) * share, metrics
