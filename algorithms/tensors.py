"""Tensor operations that the losses share: masked statistics, ratios, KL estimators, ranks.

Shapes are (batch, time) unless stated; `mask` is bool, true on response tokens including EOS, and
false on observations between the answers of a conversation. Values at masked-out positions are
never used: they are filled before any exp or subtraction. So an infinity or a NaN there reaches
neither a value nor a gradient.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import torch
    from torch import Tensor as Tensor
else:
    Tensor = Any  # in annotations alone

    class _LazyTorch:
        """torch, imported at the first use of one of its names.

        An algorithm's options are defined beside its loss and checked before heavy imports:
        `from algorithms.tensors import torch`. A plain `import torch` works as well, but
        then a mistake on the command line shows some seconds later.
        """

        def __getattr__(self, name: str) -> Any:
            import torch

            return getattr(torch, name)

    torch = _LazyTorch()

LOG_RATIO_BOUND = 20.0  # e^20 = 5e8: a ratio beyond it is as good as infinite
KLKind = Literal["k1", "k2", "k3", "k3+"]
Aggregate = Literal["sequence_mean", "token_mean", "constant"]
Correction = Literal[
    "none", "truncated", "truncated_current", "masked", "sequence_mask", "decoupled"
]
# Default bounds of each correction. For tokens they are TRL's. Those for responses are wide enough
# for a lag of some steps; verl's 0.999 and 1.001 only allow for an engine's rounding.
CORRECTION_BOUNDS: dict[Correction, tuple[float, float]] = {
    "truncated": (0.0, 2.0),
    "truncated_current": (0.0, 1.0),  # RLEF's (2410.02089)
    "masked": (0.5, 2.0),
    "sequence_mask": (0.9, 1.1),
}


# Masked sums and means


def masked_sum(x: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Sum over the masked-in entries along `dim`."""
    return x.masked_fill(~mask, 0.0).sum(dim)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean over all masked-in entries → scalar; 0 if there are none."""
    return x.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def masked_whiten(x: Tensor, mask: Tensor) -> Tensor:
    """(x − mean) / std over all masked-in entries, zero elsewhere."""
    centred = (x - masked_mean(x, mask)).masked_fill(~mask, 0.0)
    return centred * (masked_mean(centred.square(), mask) + 1e-8).rsqrt()


def turn_starts(mask: Tensor) -> Tensor:
    """The first token of each run of masked-in ones: of each answer of a conversation."""
    before = torch.nn.functional.pad(mask[:, :-1], (1, 0))
    return mask & ~before


def group_mean(x: Tensor, keep: Tensor, group_size: int) -> Tensor:
    """Mean over each group's kept rows → (groups,); 0 for a group without kept rows.

    x, keep (batch,), the rows of a group adjacent.
    """
    kept = keep.view(-1, group_size)
    total = x.view(-1, group_size).masked_fill(~kept, 0.0).sum(-1)
    return total / kept.sum(-1).clamp(min=1)


def group_log_mean_exp(x: Tensor, keep: Tensor, group_size: int) -> Tensor:
    """log mean exp x over each group's kept rows → (groups,); −∞ for a group without any.

    x, keep (batch,), the rows of a group adjacent.
    """
    kept = keep.view(-1, group_size)
    total = x.masked_fill(~keep, -math.inf).view(-1, group_size).logsumexp(-1)
    return total - kept.sum(-1).clamp(min=1).to(x.dtype).log()


def group_count(keep: Tensor, group_size: int, dtype: torch.dtype) -> Tensor:
    """Number of kept rows in each row's group → (batch,); keep (batch,) bool, groups adjacent."""
    return keep.view(-1, group_size).sum(-1).repeat_interleave(group_size).to(dtype)


def aggregate(terms: Tensor, mask: Tensor, how: Aggregate, constant: int = 1) -> Tensor:
    """Per-token terms → scalar.

    sequence_mean: over the tokens of a response, then over responses (GRPO, 2402.03300);
    token_mean: over all tokens (PPO for language models; DAPO, 2503.14476);
    constant: token sum of a response over `constant`, then over responses (Dr.GRPO, 2503.20783).
    """
    if how == "token_mean":
        return masked_mean(terms, mask)
    if how == "sequence_mean":
        return (masked_sum(terms, mask) / mask.sum(-1).clamp(min=1)).mean()
    if how == "constant":
        return (masked_sum(terms, mask) / constant).mean()
    raise ValueError(f"aggregate={how!r}; choose one of {', '.join(get_args(Aggregate))}")


# Ratios of two policies


def log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """log π/π_old per token, 0 where masked out, clamped to ±20."""
    difference = logp.masked_fill(~mask, 0.0) - old_logp.masked_fill(~mask, 0.0)
    return difference.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def clipped_terms(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    low: float,
    high: float,
    weights: Tensor | None = None,
) -> Tensor:
    """−w min(ρ A, clip(ρ, 1 − low, 1 + high) A) per token (1707.06347, eq. 7; w is 1 there)."""
    ratio = log_ratio(logp, old_logp, mask).exp()
    advantages = advantages.masked_fill(~mask, 0.0)
    terms = -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
    return terms if weights is None else terms * weights.masked_fill(~mask, 0.0)


def is_clipped(
    ratio: Tensor, advantages: Tensor, lowest: float | Tensor, highest: float | Tensor
) -> Tensor:
    """Bool: tokens without gradient, A > 0 and ρ > highest, or A < 0 and ρ < lowest."""
    return ((advantages > 0) & (ratio > highest)) | ((advantages < 0) & (ratio < lowest))


def clip_share(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, low: float, high: float
) -> Tensor:
    """Share of tokens whose gradient the clip removes → scalar."""
    ratio = log_ratio(logp, old_logp, mask).exp()
    return masked_mean(is_clipped(ratio, advantages, 1 - low, 1 + high).to(ratio.dtype), mask)


def correction_weights(
    proximal_logp: Tensor,
    rollout_logp: Tensor,
    mask: Tensor,
    kind: Correction,
    low: float = 0.0,
    high: float = float("inf"),
) -> tuple[Tensor, Tensor]:
    """Importance weights for responses of older weights, or of an engine unlike the learner.

    Three policies: the rollout policy μ generated the responses, the proximal policy π_0 is the
    learner's at the start of the update, π is being trained. Without correction the ratio and its
    clip are against μ. With correction they are against π_0, and each token's term is multiplied
    by a weight made from w = π_0/μ (Hilton et al., 2110.00641):

        decoupled      w itself (AReaL, 2505.24298)
        truncated      w between `low` and `high` (TIS: Ionides 2008; Yao et al. 2025)
        masked         w where it lies between `low` and `high`, else 0 (IcePop, 2510.18855)
        sequence_mask  w where the response's geometric mean of w does, else 0
        truncated_current  truncated, with w = sg[π/μ]: the learner computes it anew at each step,
                           with π for `proximal_logp` (RLEF, 2410.02089: min(π/μ, 1))

    Masked terms stay in the denominators of means. Truncated without bounds equals decoupled.
    Returns (weights, bool: changed by a bound), both (batch, time). Weights are 1 where masked out.
    """
    log_w = log_ratio(proximal_logp, rollout_logp, mask)
    w = log_w.exp()
    bounded = w
    if kind == "sequence_mask":
        mean = masked_sum(log_w, mask) / mask.sum(-1).clamp(min=1)
        bounded = mean.exp().unsqueeze(-1).expand_as(w)
    cut = ((bounded < low) | (bounded > high)) & mask
    if kind == "decoupled":
        return w, cut & False
    if kind in ("truncated", "truncated_current"):
        return w.clamp(low, high), cut
    return w.masked_fill(cut, 0.0), cut


def kl(logp: Tensor, ref_logp: Tensor, kind: KLKind) -> Tensor:
    """Estimators of KL(π ‖ π_ref) per token, from tokens of π (Schulman, "Approximating KL
    divergence", 2020), with d = log π − log π_ref.

    k1 = d: unbiased value; in a loss its expected gradient on-policy is zero.
    k2 = d²/2: biased value; in a loss its gradient on-policy is that of the KL.
    k3 = e^{−d} − 1 + d: unbiased value, never negative; in a loss its gradient is biased.
    k3+: the value of k3 with the gradient of k2.
    Where π_ref/π exceeds e^20, k3 continues as a straight line: it stays finite and keeps a slope.
    """
    d = logp - ref_logp
    if kind == "k1":
        return d
    k2 = 0.5 * d.square()
    if kind == "k2":
        return k2
    # Two branches, not one sum with a term that is zero nearby: in float32 its slope of e^20 would
    # swallow the other's.
    near, slope = (-d).clamp(max=LOG_RATIO_BOUND), math.expm1(LOG_RATIO_BOUND)
    line = slope * (-d - LOG_RATIO_BOUND) + slope - LOG_RATIO_BOUND
    k3 = torch.where(-d > LOG_RATIO_BOUND, line, torch.expm1(near) - near)
    if kind == "k3":
        return k3
    if kind == "k3+":
        return k2 + (k3 - k2).detach()
    raise ValueError(f"KL estimator {kind!r}; choose one of {', '.join(get_args(KLKind))}")


# Tie-breaking that does not depend on how a batch is laid out


def tie_breakers(logp: Tensor, mask: Tensor) -> Tensor:
    """A number in [0, 1) for each response, from its own log-prob: (batch, time) → (batch,)."""
    return (masked_sum(logp, mask) * 1e3).frac().abs()


def group_ranks(key: Tensor, tie_breaker: Tensor, keep: Tensor) -> Tensor:
    """Number of a group's kept rows that come before each row; (groups, size) each → the same.

    The greater key comes first, then the greater tie breaker. Equal responses have equal tie
    breakers; of those the earlier row comes first.
    """
    row = torch.arange(key.shape[-1], device=key.device).expand(key.shape)
    ahead = torch.zeros_like(keep.unsqueeze(-1) & keep.unsqueeze(-2))
    for criterion in (-row, tie_breaker, key):  # the last one decides first
        own, other = criterion.unsqueeze(-1), criterion.unsqueeze(-2)
        ahead = (other > own) | ((other == own) & ahead)
    return (ahead & keep.unsqueeze(-2)).sum(-1)
