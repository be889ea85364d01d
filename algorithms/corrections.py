"""Corrections of the ratio π/μ on responses that other weights wrote (or another engine).

Three policies: μ wrote the responses, the proximal π_0 is the learner's at the start of the update,
π is being trained. Uncorrected, the ratio and its clip are against μ. Corrected, they are against
π_0, and each token's term is weighed by what is left of w = π_0/μ (Hilton et al., 2110.00641):

    decoupled      w itself (AReaL, 2505.24298)
    truncated      w between `low` and `high` (TIS: Ionides 2008; Yao et al. 2025)
    masked         w where it lies between `low` and `high`, else 0 (IcePop, 2510.18855)
    sequence_mask  w where the response's geometric mean of w does, else 0

What is masked stays in the denominators of means. Truncated with no bounds is decoupled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from algorithms.tensors import log_ratio, masked_sum

if TYPE_CHECKING:
    from torch import Tensor

Correction = Literal["none", "truncated", "masked", "sequence_mask", "decoupled"]
# Where nothing else is asked for: TRL's for tokens; for responses wide enough for a lag of some
# steps, where verl's 0.999 and 1.001 are for an engine's rounding.
BOUNDS: dict[Correction, tuple[float, float]] = {
    "truncated": (0.0, 2.0),
    "masked": (0.5, 2.0),
    "sequence_mask": (0.9, 1.1),
}


def correction_weights(
    proximal_logp: Tensor,
    writer_logp: Tensor,
    mask: Tensor,
    kind: Correction,
    low: float = 0.0,
    high: float = float("inf"),
) -> tuple[Tensor, Tensor]:
    """(weights of the ratio's terms, bool: where a bound changed them), (batch, time) as all given.

    Weights are 1 where masked out. `low` and `high` bound w, or its geometric mean.
    """
    log_w = log_ratio(proximal_logp, writer_logp, mask)
    w = log_w.exp()
    bounded = w
    if kind == "sequence_mask":
        mean = masked_sum(log_w, mask) / mask.sum(-1).clamp(min=1)
        bounded = mean.exp().unsqueeze(-1).expand_as(w)
    cut = ((bounded < low) | (bounded > high)) & mask
    if kind == "decoupled":
        return w, cut & False
    if kind == "truncated":
        return w.clamp(low, high), cut
    return w.masked_fill(cut, 0.0), cut
