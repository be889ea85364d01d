"""GRPO and PPO on some of a prompt's responses: CPPO and PF-PPO.

Between responses that are alike in what decides, a lot does (`lots.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from algorithms.base import Batch, Needs
from algorithms.grpo import GRPO, GRPOConfig
from algorithms.lots import lots, places
from algorithms.ppo import PPO
from algorithms.tensors import group_count

if TYPE_CHECKING:
    from torch import Tensor


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
