"""Tensor operations that every algorithm shares: masked statistics, KL estimators, log-probs.

Shapes are (batch, time) unless said; `mask` is bool, true on response tokens including EOS. What
stands at masked positions is never read: it is filled before any exp or subtraction, so that an
infinity or a NaN there reaches neither a value nor a gradient.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, get_args

from algorithms import lazy_torch as torch

if TYPE_CHECKING:
    from torch import Tensor

LOG_RATIO_BOUND = 20.0  # e^20 = 5e8: beyond it a ratio says "elsewhere", not how far
LOGITS_PER_CHUNK = 2**24  # elements of one float32 block of logits: 64 MiB
KLKind = Literal["k1", "k2", "k3", "k3+"]
Aggregate = Literal["sequence_mean", "token_mean", "constant"]
Entropy = Literal["none", "value", "graph"]  # not computed, without gradient, with it


def masked_sum(x: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Sum over the masked-in entries along `dim`."""
    return x.masked_fill(~mask, 0.0).sum(dim)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean over all masked-in entries → scalar; 0 where there are none."""
    return x.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def group_mean(x: Tensor, keep: Tensor, group_size: int) -> Tensor:
    """Mean over each group's kept rows → (groups,); 0 where a group keeps none.

    x, keep (batch,), the rows of a group adjacent.
    """
    kept = keep.view(-1, group_size)
    total = x.view(-1, group_size).masked_fill(~kept, 0.0).sum(-1)
    return total / kept.sum(-1).clamp(min=1)


def group_count(keep: Tensor, group_size: int, dtype: torch.dtype) -> Tensor:
    """How many kept rows each row's group has → (batch,), keep (batch,) bool laid out in groups."""
    return keep.view(-1, group_size).sum(-1).repeat_interleave(group_size).to(dtype)


def masked_whiten(x: Tensor, mask: Tensor) -> Tensor:
    """(x − mean) / std over all masked-in entries, zero elsewhere."""
    centred = (x - masked_mean(x, mask)).masked_fill(~mask, 0.0)
    return centred * (masked_mean(centred.square(), mask) + 1e-8).rsqrt()


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
    raise ValueError(f"aggregate={how!r}; it is one of {', '.join(get_args(Aggregate))}")


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


def clip_share(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, low: float, high: float
) -> Tensor:
    """Share of tokens whose gradient the clip removes → scalar."""
    ratio = log_ratio(logp, old_logp, mask).exp()
    cut = ((advantages > 0) & (ratio > 1 + high)) | ((advantages < 0) & (ratio < 1 - low))
    return masked_mean(cut.to(ratio.dtype), mask)


def kl(logp: Tensor, ref_logp: Tensor, kind: KLKind) -> Tensor:
    """Estimators of KL(π ‖ π_ref) per token, from tokens of π (Schulman, "Approximating KL
    divergence", 2020), with d = log π − log π_ref.

    k1 = d: unbiased value; in a loss its expected gradient on-policy is zero.
    k2 = d²/2: biased value; in a loss its gradient on-policy is that of the KL.
    k3 = e^{−d} − 1 + d: unbiased value, never negative; in a loss its gradient is biased.
    k3+: the value of k3 with the gradient of k2.
    Where π_ref/π exceeds e^20, k3 goes on as a straight line: finite, and still pulling back.
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
    raise ValueError(f"KL estimator {kind!r}; it is one of {', '.join(get_args(KLKind))}")


def chosen_logp(
    hidden: Tensor,
    head: torch.nn.Module,
    tokens: Tensor,
    temperature: float = 1.0,
    entropy: Entropy = "value",
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies of softmax(head(hidden) / temperature), in float32.

    hidden (n, width), tokens (n,) → logp (n,), entropy (n,) in nats, NaN where entropy=none. Works
    in chunks, and keeps no logits for backward where there is more than one: each chunk is computed
    again there.
    """

    def chunk(h: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(h).float()
        if temperature != 1:
            logits = logits / temperature
        normaliser = logits.logsumexp(-1)
        logp = logits.gather(-1, t.unsqueeze(-1)).squeeze(-1) - normaliser
        if entropy == "none":
            return logp, torch.full_like(logp, torch.nan, requires_grad=False)
        with torch.set_grad_enabled(entropy == "graph" and torch.is_grad_enabled()):
            return logp, normaliser - (logits.softmax(-1) * logits).sum(-1)

    vocabulary = getattr(head, "out_features", None) or head.weight.shape[0]
    size = max(1, LOGITS_PER_CHUNK // vocabulary)
    if len(tokens) <= size:
        return chunk(hidden, tokens)
    if entropy != "graph" and type(head) is torch.nn.Linear:
        from algorithms.chunked_logprobs import ChosenLogp

        settings = (temperature, size, entropy == "value")
        return ChosenLogp.apply(hidden, head.weight, head.bias, tokens, *settings)
    from torch.utils.checkpoint import checkpoint

    pairs = zip(hidden.split(size), tokens.split(size), strict=True)
    parts = [checkpoint(chunk, h, t, use_reentrant=False) for h, t in pairs]
    logp, entropies = zip(*parts, strict=True)
    return torch.cat(logp), torch.cat(entropies)


# Chance that is the same however a batch is laid out: lots drawn from what a response is.


def lots(logp: Tensor, mask: Tensor) -> Tensor:
    """A number in [0, 1) for each response, from its own log-prob, (batch, time) → (batch,)."""
    return (masked_sum(logp, mask) * 1e3).frac().abs()


def places(key: Tensor, lot: Tensor, kept: Tensor) -> Tensor:
    """How many of a group's kept rows come before each; (groups, size) each → the same.

    The greater key first, then the greater lot; of equal responses, whose lots are equal, the
    earlier row.
    """
    row = torch.arange(key.shape[-1], device=key.device).expand(key.shape)
    ahead = torch.zeros_like(kept.unsqueeze(-1) & kept.unsqueeze(-2))
    for of in (-row, lot, key):  # the last decides first
        mine, other = of.unsqueeze(-1), of.unsqueeze(-2)
        ahead = (other > mine) | ((other == mine) & ahead)
    return (ahead & kept.unsqueeze(-2)).sum(-1)
