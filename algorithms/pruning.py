"""GRPO and PPO on some of a prompt's responses: CPPO and PF-PPO.

Which responses are alike in what decides is settled by a lot drawn from the response's own log-prob
under its writer: as good as random, and the same however the batch is laid out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from algorithms.base import Batch, Needs
from algorithms.grpo import GRPO, GRPOConfig
from algorithms.ppo import PPO
from algorithms.tensors import group_count, masked_sum

if TYPE_CHECKING:
    from torch import Tensor


def lots(batch: Batch) -> Tensor:
    """A number in [0, 1) for each response → (batch,)."""
    return (masked_sum(batch.behaviour_logp, batch.mask) * 1e3).frac().abs()


def place(key: Tensor, batch: Batch) -> Tensor:
    """How many kept responses of the same group have a greater key → (batch,); lots settle ties."""
    shape = (-1, batch.group_size)
    k, lot, kept = key.view(shape), lots(batch).view(shape), batch.keep.view(shape)
    mine, other = (k.unsqueeze(-1), lot.unsqueeze(-1)), (k.unsqueeze(-2), lot.unsqueeze(-2))
    ahead = (other[0] > mine[0]) | ((other[0] == mine[0]) & (other[1] > mine[1]))
    return (ahead & kept.unsqueeze(-2)).sum(-1).flatten()


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
        return replace(super().needs, groups=True)

    def prepare(self, batch: Batch) -> Batch:
        ends = (place(batch.rewards, batch) == 0) | (place(-batch.rewards, batch) == 0)
        return super().prepare(replace(batch, keep=batch.keep & ends))
