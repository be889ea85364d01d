"""GRPO: group-relative policy optimisation (Shao et al., DeepSeekMath, arXiv 2402.03300).

The baseline is the mean reward of a prompt's own group of responses, so there is no critic. Every
token of a response has its response's advantage; the KL to the reference is part of the loss. The
published variants are five options, and a result that says "GRPO" states all five: `scale_by_std`,
`aggregate`, `clip_high`, `kl`, `zero_variance`.

Weight of `kl_coef` against the reward: with the std it counts as
kl_coef × std × G/(G − 1), about a quarter to a half of the same coefficient in PPO. The KL in the
loss is each token's own: a token's effect on the KL of later tokens is left out.

Rows that `train.truncation=mask` drops are in no denominator and in no group's mean or std.
DAPO (2503.14476, "overlong filtering") masks the loss of truncated responses but leaves their
rewards in their group's mean and std; that form is not offered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from algorithms.base import Algorithm, Batch, Needs, Options, PolicyOutput
from algorithms.tensors import (
    Aggregate,
    KLKind,
    Tensor,
    aggregate,
    clip_share,
    clipped_terms,
    group_count,
    group_mean,
    group_ranks,
    kl,
    tie_breakers,
    torch,
)


@dataclass
class GRPOConfig(Options):
    """Options of GRPO; the defaults are the original paper's form."""

    scale_by_std: bool
    aggregate: Aggregate
    constant_length: PositiveInt
    clip_low: Annotated[float, Field(gt=0, lt=1)]
    clip_high: PositiveFloat
    kl: KLKind
    kl_coef: NonNegativeFloat
    zero_variance: Literal["keep", "drop"]


def group_advantages(
    rewards: Tensor,
    group_size: int,
    *,
    scale_by_std: bool = True,
    keep: Tensor | None = None,
) -> Tensor:
    """(r − mean of the group) / (std of the group + 1e-6) → (batch,), the std Bessel-corrected.

    rewards (batch,), rows of a group adjacent (2402.03300, §4.1.2). `keep` (batch,) bool: mean and
    std are over these rows only (None: all), and the others' advantage is zero. A group whose kept
    rewards are all equal, or that keeps one row, has advantage zero. ValueError for a group of one
    or a batch that is not whole groups.
    """
    if group_size < 2:
        raise ValueError(f"a group of {group_size} has no relative advantage; it takes at least 2")
    if len(rewards) % group_size:
        raise ValueError(f"{len(rewards)} rows are not whole groups of {group_size}")
    keep = torch.ones_like(rewards, dtype=torch.bool) if keep is None else keep
    kept = keep.view(-1, group_size)
    groups = rewards.view(-1, group_size)
    centred = groups - group_mean(rewards, keep, group_size).unsqueeze(-1)
    centred = centred.masked_fill(~kept, 0.0)
    if scale_by_std:
        freedom = (kept.sum(-1, keepdim=True) - 1).clamp(min=1)
        centred = centred / ((centred.square().sum(-1, keepdim=True) / freedom).sqrt() + 1e-6)
    return centred.masked_fill(zero_variance(groups, kept), 0.0).flatten()


def zero_variance(groups: Tensor, kept: Tensor) -> Tensor:
    """(groups, size) twice → (groups, 1): whether all kept rewards are equal, or none is kept.

    The std of equal floats need not be 0.
    """
    highest = groups.masked_fill(~kept, -torch.inf).amax(-1, keepdim=True)
    lowest = groups.masked_fill(~kept, torch.inf).amin(-1, keepdim=True)
    return highest <= lowest


class GRPO(Algorithm):
    """Needs groups, behaviour log-probs, and the reference unless kl_coef is 0."""

    Config: type[Options] = GRPOConfig
    config: GRPOConfig

    @property
    def needs(self) -> Needs:
        return Needs(reference=self.config.kl_coef > 0, groups=2, behaviour="ratio")

    def prepare(self, batch: Batch) -> Batch:
        c, size = self.config, batch.group_size
        keep = batch.keep
        advantages = group_advantages(batch.rewards, size, scale_by_std=c.scale_by_std, keep=keep)
        if c.zero_variance == "drop":
            flat = zero_variance(batch.rewards.view(-1, size), keep.view(-1, size))
            keep = keep & ~flat.expand(-1, size).flatten()
        return replace(
            batch, advantages=advantages.unsqueeze(-1).expand(batch.mask.shape), keep=keep
        )

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, mask = self.config, batch.mask
        old_logp, advantages = batch.behaviour_logp, batch.advantages
        share = batch.token_share if c.aggregate == "token_mean" else batch.sequence_share
        terms = clipped_terms(
            policy.logp, old_logp, advantages, mask, c.clip_low, c.clip_high, batch.correction
        )
        if c.kl_coef > 0:
            logp = policy.logp.masked_fill(~mask, 0.0)
            terms = terms + c.kl_coef * kl(logp, batch.ref_logp.masked_fill(~mask, 0.0), c.kl)
        loss = aggregate(terms, mask, c.aggregate, c.constant_length)
        with torch.no_grad():
            cut = clip_share(policy.logp, old_logp, advantages, mask, c.clip_low, c.clip_high)
        return loss * share, {"clip_share": cut * batch.token_share}


@dataclass
class CPPOOptions(GRPOConfig):
    """Options of CPPO: GRPO's, and"""

    prune: Annotated[float, Field(ge=0, lt=1)]


class CPPO(GRPO):
    """Completion pruning (arXiv 2503.22342, and its code): GRPO on the greatest |A| of each group.

    With rewards of 0 and 1 the rarer of the two is kept. The paper fills the free rows with further
    prompts' responses: use more prompts per batch, `train.prompts` / (1 − prune).
    """

    Config = CPPOOptions
    config: CPPOOptions

    def prepare(self, batch: Batch) -> Batch:
        prepared, shape = super().prepare(batch), (-1, batch.group_size)
        count = group_count(batch.keep, batch.group_size, batch.rewards.dtype)
        left = count * (1 - self.config.prune)
        rank = group_ranks(
            prepared.advantages[:, 0].abs().view(shape),
            tie_breakers(batch.behaviour_logp, batch.mask).view(shape),
            batch.keep.view(shape),
        )
        return replace(prepared, keep=prepared.keep & (rank.flatten() < left.ceil()))
