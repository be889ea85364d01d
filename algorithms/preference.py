"""Preference losses on verdicts: each accepted response of a group against each that failed.

h is the sum of log π/π_ref over a response, whoever wrote it; the loss is a mean over a prompt's
pairs, then over the prompts that have any: where all failed or all were accepted nothing is learnt.
A pair needs the gradient of two rows that micro-batches may part, so `prepare` takes the slopes of
the loss in h at the present policy, which is the policy of the step, and each row pulls by its own.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import PositiveFloat, PositiveInt

from algorithms import lazy_torch as torch
from algorithms.base import Algorithm, Batch, Needs, Options, PolicyOutput
from algorithms.tensors import lots, masked_sum, places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass
class PairOptions(Options):
    """Options of all of them."""

    beta: PositiveFloat = 0.1  # weight of the log-ratio against the preference


class PreferenceLoss(Algorithm):
    """Subclasses give the loss of a pair."""

    Config = PairOptions
    config: PairOptions

    @property
    def needs(self) -> Needs:
        return Needs(reference=True, groups=True, policy=True, off_policy=True)

    @abstractmethod
    def pair(self, won: Tensor, lost: Tensor) -> Tensor:
        """Loss of a pair, elementwise, from both log-ratio sums."""

    def group_losses(self, h: Tensor, rewards: Tensor, kept: Tensor, lot: Tensor) -> Tensor:
        """(groups, size) each → (groups,): the mean over a prompt's pairs, 0 without any.

        `lot` is for an objective that has to settle ties.
        """
        better = preferences(rewards, kept)
        losses = self.pair(h.unsqueeze(-1), h.unsqueeze(-2)).masked_fill(~better, 0.0)
        return losses.sum((-1, -2)) / better.sum((-1, -2)).clamp(min=1)

    def prepare(self, batch: Batch) -> Batch:
        shape = (-1, batch.group_size)
        rewards, kept = batch.rewards.view(shape), batch.keep.view(shape)
        lot = lots(batch.ref_logp, batch.mask).view(shape)
        prompts = preferences(rewards, kept).any(-1).any(-1).sum().clamp(min=1)
        start = log_ratio_sum(batch.policy_logp, batch).masked_fill(~batch.keep, 0.0)
        with torch.enable_grad():
            h = start.detach().requires_grad_(True)
            value = self.group_losses(h.view(shape), rewards, kept, lot).sum() / prompts
            (slopes,) = torch.autograd.grad(value, h)
        slopes = slopes.unsqueeze(-1).expand(batch.mask.shape)
        return replace(batch, weights=slopes, targets=value.detach().expand(len(start)))

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        h = log_ratio_sum(policy.logp, batch)
        pull = (batch.weights[:, 0] * (h - h.detach())).sum()
        return batch.targets.mean() * batch.sequence_share + pull, {}


def log_ratio_sum(logp: Tensor, batch: Batch) -> Tensor:
    """Σ_t log π − log π_ref of each response → (batch,)."""
    return masked_sum(logp, batch.mask) - masked_sum(batch.ref_logp, batch.mask)


def preferences(rewards: Tensor, kept: Tensor) -> Tensor:
    """(groups, size) twice → (groups, size, size): the first is better, and both are kept."""
    both = kept.unsqueeze(-1) & kept.unsqueeze(-2)
    return (rewards.unsqueeze(-1) > rewards.unsqueeze(-2)) & both


class DPO(PreferenceLoss):
    """Direct preference optimisation (Rafailov et al., arXiv 2305.18290, eq. 7)."""

    def pair(self, won: Tensor, lost: Tensor) -> Tensor:
        return -torch.nn.functional.logsigmoid(self.config.beta * (won - lost))


class IPO(PreferenceLoss):
    """Identity preference optimisation (Azar et al., arXiv 2310.12036, eq. 17): sums, as there.

    Public codes divide h by the response's length.
    """

    def pair(self, won: Tensor, lost: Tensor) -> Tensor:
        return (won - lost - 0.5 / self.config.beta).square()


@dataclass
class RSOOptions(PairOptions):
    """Options of RSO."""

    beta: PositiveFloat = 0.05  # the paper's γ
    samples: PositiveInt = 8  # drawn from each group by rejection; the paper's groups have 64
    sampling_beta: PositiveFloat = 0.5  # the paper's β: that of the optimum they are drawn as from


class RSO(PreferenceLoss):
    """Statistical rejection sampling optimisation (Liu et al., arXiv 2309.06657).

    The hinge max(0, 1 − γ (h_w − h_l)) on pairs of `samples` responses, drawn from the group as
    from π_ref e^{R/β} (its algorithm 1). A group of no more than that is paired whole. All pairs
    of what was drawn, where the paper ranks half as many. The paper's candidates are the
    reference's; here they are the writer's. Equal responses stand or fall together.
    """

    Config = RSOOptions
    config: RSOOptions

    def prepare(self, batch: Batch) -> Batch:
        c, shape = self.config, (-1, batch.group_size)
        # A response's own log-prob decides: as good as random, however the batch is laid out.
        number = 1e3 * masked_sum(batch.ref_logp, batch.mask).double().view(shape)
        lots = [(number * math.sqrt(i * i + 1)).frac().abs() for i in range(c.samples)]
        rows = (batch.rewards.view(shape), batch.keep.view(shape))
        drawn = rejection_sample(*rows, lots, c.samples, c.sampling_beta)
        return super().prepare(replace(batch, keep=drawn.flatten()))

    def pair(self, won: Tensor, lost: Tensor) -> Tensor:
        return torch.relu(1 - self.config.beta * (won - lost))


def rejection_sample(
    rewards: Tensor, kept: Tensor, lots: Sequence[Tensor], count: int, beta: float
) -> Tensor:
    """`count` of each group's kept rows, or all if no more → (groups, size) bool, as all given.

    In each round one of those left is accepted with probability e^{(R − the best R left)/β}, where
    its lot in [0, 1) is below that; the best always is, so that `count` rounds are enough. Of more
    than there is room for those stay whose lots were farthest below: a random choice.
    """
    taken = torch.zeros_like(kept)
    for lot in lots:
        left = kept & ~taken
        best = rewards.masked_fill(~left, -torch.inf).amax(-1, keepdim=True)
        place = lot / ((rewards - best) / beta).exp()  # uniform in [0, 1) among those accepted
        place = torch.where(left & (place < 1), place, torch.inf)
        before = (place.unsqueeze(-2) < place.unsqueeze(-1)).sum(-1)
        taken = taken | ((place < 1) & (before < count - taken.sum(-1, keepdim=True)))
    return taken


class LiPO(PreferenceLoss):
    """LiPO-λ (Liu et al., arXiv 2402.01878): the logistic loss of a pair, weighed as in LambdaRank.

    Weights |2^ψ_i − 2^ψ_j| |1/log(1 + rank_i) − 1/log(1 + rank_j)|, ψ the rewards, rank 1 the
    greatest h of the group; summed over a prompt's pairs. Ranks are of all, each its own, and lots
    settle ties: at the start every h is 0, and equal ranks would weigh every pair 0 for ever.
    """

    def pair(self, won: Tensor, lost: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-self.config.beta * (won - lost))

    def group_losses(self, h: Tensor, rewards: Tensor, kept: Tensor, lot: Tensor) -> Tensor:
        discount = 1 / torch.log1p(1.0 + places(h.detach(), lot, kept).to(h.dtype))
        weight = 1.0
        for of_row in (2**rewards, discount):
            weight = weight * (of_row.unsqueeze(-1) - of_row.unsqueeze(-2)).abs()
        losses = weight * self.pair(h.unsqueeze(-1), h.unsqueeze(-2))
        return losses.masked_fill(~preferences(rewards, kept), 0.0).sum((-1, -2))
