"""SFT: maximum likelihood of the accepted responses, whoever wrote them. A control.

No reward but the choice of what to imitate, no reference, no critic: what it reaches from the data
set's own programs is what anyone gets who is shown them, and only what an algorithm reaches beyond
that, from the same programs, is the algorithm's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from algorithms.base import Algorithm, Batch, Needs, Options, PolicyOutput
from algorithms.tensors import masked_mean

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class SFTConfig(Options):
    """Options of SFT."""

    name: str = "sft"
    core: str = "algorithms.sft.SFT"


class SFT(Algorithm):
    """Needs nothing but responses, and keeps those with the best reward."""

    Config = SFTConfig
    config: SFTConfig

    @property
    def needs(self) -> Needs:
        return Needs(off_policy=True, share="offline_share", best_reward=True)

    def prepare(self, batch: Batch) -> Batch:
        return replace(batch, keep=batch.keep & (batch.rewards >= self.reward_high))

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean of −log π over the kept responses' tokens."""
        return -masked_mean(policy.logp, batch.mask) * batch.token_share, {}


class RAFT(SFT):
    """The same of the model's own accepted responses (RAFT, arXiv 2304.06767): the other control.

    The paper imitates the best of a prompt's responses; all accepted ones are equally good here.
    """

    @property
    def needs(self) -> Needs:
        return Needs(best_reward=True)
