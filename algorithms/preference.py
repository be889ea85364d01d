"""Preference losses on verdicts: each accepted response of a group against each that failed.

h is the sum of log π/π_ref over a response of any policy. The loss is a mean over a prompt's
pairs, then over the prompts that have any: a prompt whose responses all failed or all passed has
none. A pair needs the gradient of two rows, which may be in different micro-batches. So `prepare`
computes the slopes of the loss in h at the current policy, which is the policy of the step, and
`loss` gives each row its own slope.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import PositiveFloat, PositiveInt

from algorithms.base import Algorithm, Batch, Needs, Options, PolicyOutput
from algorithms.tensors import group_ranks, masked_sum, tie_breakers, torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass
class PairOptions(Options):
    """Common options."""

    beta: PositiveFloat = 0.1  # weight of the log-ratio against the preference


class PreferenceLoss(Algorithm):
    """Subclasses define the loss of a pair."""

    Config: type[Options] = PairOptions
    config: PairOptions

    @property
    def needs(self) -> Needs:
        return Needs(reference=True, groups=True, policy=True, off_policy=True)

    @abstractmethod
    def pair_loss(self, h_chosen: Tensor, h_rejected: Tensor) -> Tensor:
        """Loss of a pair, elementwise, from both log-ratio sums."""

    def group_losses(self, h: Tensor, rewards: Tensor, keep: Tensor, tie_breaker: Tensor) -> Tensor:
        """(groups, size) each → (groups,): the mean over a prompt's pairs, 0 without any.

        `tie_breaker` is for objectives that rank responses.
        """
        better = preferences(rewards, keep)
        losses = self.pair_loss(h.unsqueeze(-1), h.unsqueeze(-2)).masked_fill(~better, 0.0)
        return losses.sum((-1, -2)) / better.sum((-1, -2)).clamp(min=1)

    def prepare(self, batch: Batch) -> Batch:
        shape = (-1, batch.group_size)
        rewards, keep = batch.rewards.view(shape), batch.keep.view(shape)
        tie_breaker = tie_breakers(batch.ref_logp, batch.mask).view(shape)
        prompts = preferences(rewards, keep).any(-1).any(-1).sum().clamp(min=1)
        start = log_ratio_sum(batch.policy_logp, batch).masked_fill(~batch.keep, 0.0)
        with torch.enable_grad():
            h = start.detach().requires_grad_(True)
            value = self.group_losses(h.view(shape), rewards, keep, tie_breaker).sum() / prompts
            (slopes,) = torch.autograd.grad(value, h)
        slopes = slopes.unsqueeze(-1).expand(batch.mask.shape)
        return replace(batch, weights=slopes, targets=value.detach().expand(len(start)))

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        h = log_ratio_sum(policy.logp, batch)
        linear = (batch.weights[:, 0] * (h - h.detach())).sum()  # 0, with the slopes as gradient
        return batch.targets.mean() * batch.sequence_share + linear, {}


def log_ratio_sum(logp: Tensor, batch: Batch) -> Tensor:
    """Σ_t log π − log π_ref of each response → (batch,)."""
    return masked_sum(logp, batch.mask) - masked_sum(batch.ref_logp, batch.mask)


def preferences(rewards: Tensor, keep: Tensor) -> Tensor:
    """(groups, size) twice → (groups, size, size): the first is better, and both are kept."""
    both = keep.unsqueeze(-1) & keep.unsqueeze(-2)
    return (rewards.unsqueeze(-1) > rewards.unsqueeze(-2)) & both


class DPO(PreferenceLoss):
    """Direct preference optimisation (Rafailov et al., arXiv 2305.18290, eq. 7)."""

    def pair_loss(self, h_chosen: Tensor, h_rejected: Tensor) -> Tensor:
        return -torch.nn.functional.logsigmoid(self.config.beta * (h_chosen - h_rejected))


class IPO(PreferenceLoss):
    """Identity preference optimisation (Azar et al., arXiv 2310.12036, eq. 17).

    h is a sum, as in the paper; public codes divide it by the response's length.
    """

    def pair_loss(self, h_chosen: Tensor, h_rejected: Tensor) -> Tensor:
        return (h_chosen - h_rejected - 0.5 / self.config.beta).square()


@dataclass
class RSOOptions(PairOptions):
    """Options of RSO."""

    beta: PositiveFloat = 0.05  # weight of the log-ratio against the preference, the paper's γ
    samples: PositiveInt = 8  # drawn from each group by rejection; the paper's groups have 64
    sampling_beta: PositiveFloat = 0.5  # β of the optimum that the draw imitates


class RSO(PreferenceLoss):
    """Statistical rejection sampling optimisation (Liu et al., arXiv 2309.06657).

    The hinge max(0, 1 − γ (h_w − h_l)) on pairs of `samples` responses, drawn from the group as
    from π_ref e^{R/β} (its algorithm 1). A group of at most `samples` responses is used whole. All
    pairs of the drawn responses count, where the paper ranks half as many. The paper's candidates
    come from the reference, here from the rollout policy. Equal responses are drawn together.
    """

    Config = RSOOptions
    config: RSOOptions

    def prepare(self, batch: Batch) -> Batch:
        c, shape = self.config, (-1, batch.group_size)
        # Uniform numbers from a response's own log-prob: they do not depend on the batch's layout.
        number = 1e3 * masked_sum(batch.ref_logp, batch.mask).double().view(shape)
        uniforms = [(number * math.sqrt(i * i + 1)).frac().abs() for i in range(c.samples)]
        drawn = rejection_sample(
            batch.rewards.view(shape), batch.keep.view(shape), uniforms, c.samples, c.sampling_beta
        )
        return super().prepare(replace(batch, keep=drawn.flatten()))

    def pair_loss(self, h_chosen: Tensor, h_rejected: Tensor) -> Tensor:
        return torch.relu(1 - self.config.beta * (h_chosen - h_rejected))


def rejection_sample(
    rewards: Tensor, keep: Tensor, uniforms: Sequence[Tensor], count: int, beta: float
) -> Tensor:
    """`count` of each group's kept rows, or all if no more → (groups, size) bool.

    rewards, keep and each of `uniforms` (numbers in [0, 1), one tensor a round): (groups, size).
    A round accepts a remaining row with probability e^{(R − the best remaining R)/β}, where its
    number is below that. The best is always accepted, so `count` rounds are enough. If more are
    accepted than there is room for, those with the relatively smallest numbers stay.
    """
    drawn = torch.zeros_like(keep)
    for uniform in uniforms:
        left = keep & ~drawn
        best = rewards.masked_fill(~left, -torch.inf).amax(-1, keepdim=True)
        score = uniform / ((rewards - best) / beta).exp()  # uniform in [0, 1) among the accepted
        score = torch.where(left & (score < 1), score, torch.inf)
        before = (score.unsqueeze(-2) < score.unsqueeze(-1)).sum(-1)
        drawn = drawn | ((score < 1) & (before < count - drawn.sum(-1, keepdim=True)))
    return drawn


class LiPO(PreferenceLoss):
    """LiPO-λ (Liu et al., arXiv 2402.01878): the logistic loss of a pair, weighed as in LambdaRank.

    Weights |2^ψ_i − 2^ψ_j| |1/log(1 + rank_i) − 1/log(1 + rank_j)|, ψ the rewards, rank 1 the
    greatest h of the group; summed over a prompt's pairs. Every response has its own rank: at the
    start every h is 0, and equal ranks would give every pair the weight 0 for ever.
    """

    def pair_loss(self, h_chosen: Tensor, h_rejected: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-self.config.beta * (h_chosen - h_rejected))

    def group_losses(self, h: Tensor, rewards: Tensor, keep: Tensor, tie_breaker: Tensor) -> Tensor:
        ranks = group_ranks(h.detach(), tie_breaker, keep)
        weight = pairwise_distance(2**rewards)
        weight = weight * pairwise_distance(1 / torch.log1p(1.0 + ranks.to(h.dtype)))
        losses = weight * self.pair_loss(h.unsqueeze(-1), h.unsqueeze(-2))
        return losses.masked_fill(~preferences(rewards, keep), 0.0).sum((-1, -2))


def pairwise_distance(x: Tensor) -> Tensor:
    """|x_i − x_j|: (groups, size) → (groups, size, size)."""
    return (x.unsqueeze(-1) - x.unsqueeze(-2)).abs()
