"""Advantages for pass@k instead of pass@1, under the clipped surrogate.

Of a prompt's n responses c are accepted (they have the best reward); q(n, c, k) = 1 − C(n − c, k) /
C(n, k) is the unbiased pass@k, and each objective shares it out among the responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import PositiveFloat, PositiveInt

from algorithms import lazy_torch as torch
from algorithms.base import Batch, Needs
from algorithms.ratio_variants import Below
from algorithms.reinforce import GroupOptions, GroupReinforce, centred
from algorithms.tensors import clipped_terms, group_count

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class PassAtKOptions(GroupOptions):
    """Options of both."""

    k: PositiveInt = 4
    clip_low: Below = 0.2
    clip_high: PositiveFloat = 0.2


def misses(n: Tensor, wrong: Tensor, k: int) -> Tensor:
    """C(wrong, k) / C(n, k): none of k drawn from n is right; 0 where wrong < k. Elementwise."""
    share = torch.ones_like(n)
    for i in range(k):
        share = share * (wrong - i).clamp(min=0) / (n - i).clamp(min=1)
    return share


def pass_at_k_rewards(accepted: Tensor, n: Tensor, k: int, c: Tensor) -> Tensor:
    """Each response's part in its group's pass@k (2505.15201, theorem 1), all (batch,).

    k/n for an accepted response, else (k/n) q(n − 1, c, k − 1): they sum to k q(n, c, k).
    """
    others = 1 - misses(n - 1, n - 1 - c, k - 1)
    return k / n.clamp(min=1) * torch.where(accepted, 1.0, others)


class PassAtK(GroupReinforce):
    """Needs groups of at least k and the writer's log-probs."""

    Config = PassAtKOptions
    config: PassAtKOptions

    @property
    def needs(self) -> Needs:
        least = max(2, self.config.k)
        return Needs(groups=True, least_group=least, behaviour=True, best_reward=True)

    def counts(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Whether each response is accepted, its group's n and its group's c; of kept rows."""
        accepted = (batch.rewards >= self.reward_high) & batch.keep
        given = (batch.group_size, batch.rewards.dtype)
        return accepted, group_count(batch.keep, *given), group_count(accepted, *given)

    def terms(self, logp: Tensor, batch: Batch) -> Tensor:
        clip = (self.config.clip_low, self.config.clip_high)
        return clipped_terms(logp, batch.behaviour_logp, batch.advantages, batch.mask, *clip)


class PKPO(PassAtK):
    """Pass-at-k policy optimisation (Walder and Karkhanis, arXiv 2505.15201), leave-one-out − 1.

    An accepted response has C(n − c, k − 1) / C(n, k), how often it is the only one that is right,
    the others 0: the paper's estimator of least variance. Where k = 1 that is REINFORCE on R/n. The
    paper sums these over a prompt's responses; the mean over them here is 1/n of that.
    """

    def advantages(self, batch: Batch) -> Tensor:
        k = self.config.k
        accepted, n, c = self.counts(batch)
        alone = misses(n, n - c, k - 1) * k / (n - k + 1).clamp(min=1)
        return torch.where(accepted & (n >= k), alone, 0.0)


class PassK(PassAtK):
    """Pass@k training (Chen et al., arXiv 2508.10751): the pass@k rewards, standardised.

    With q = q(n, c, k) and s = sqrt(q (1 − q)): (1 − q)/s for an accepted response, else
    (1 − q − C(n − c − 1, k − 1)/C(n − 1, k − 1))/s; 0 where q is 0 or 1. k = 1 is GRPO with the
    population's std.
    """

    def advantages(self, batch: Batch) -> Tensor:
        k = self.config.k
        accepted, n, c = self.counts(batch)
        q = 1 - misses(n, n - c, k)
        s = (q * (1 - q)).clamp(min=0).sqrt()
        part = centred(batch, pass_at_k_rewards(accepted, n, k, c))
        return torch.where((s > 0) & (n >= k), part * n / (k * s), 0.0)
