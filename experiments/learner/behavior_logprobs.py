"""Who wrote a batch's responses, and the weights that correct the ratio to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from algorithms.tensors import correction_weights, masked_mean
from experiments.learner.batching import pad_rows
from experiments.learner.forward import Tokens
from experiments.sample import Sample

if TYPE_CHECKING:
    from experiments.config.schema import TrainConfig


def who_wrote(
    samples: Sequence[Sample],
    tokens: Tokens,
    config: TrainConfig,
    logp: Callable[[Tokens], Tensor],
    ref_logp: Callable[[Tokens], Tensor],
) -> tuple[dict[str, Tensor | None], dict[str, float]]:
    """The batch's fields on who wrote it, (batch, time) each, and metrics of their correction.

    Where no writer told its log-probs they are 0, or `train.missing_logprobs` says whose to take:
    the policy's or the reference's, which `logp` and `ref_logp` tell.
    """
    mask, kind = tokens.mask, config.correction
    told = pad_rows([sample.logps or () for sample in samples], mask)
    unknown = torch.tensor([[sample.logps is None] for sample in samples], device=mask.device)
    if unknown.any() and config.missing_logprobs != "reject":
        taken = logp(tokens) if config.missing_logprobs == "recomputed" else ref_logp(tokens)
        told, unknown = torch.where(unknown, taken, told), unknown & False
    fields = {"behaviour_logp": told, "correction": None, "rollout_logp": told}
    if kind == "none":
        return fields, {}
    proximal = logp(tokens)
    weights, cut = correction_weights(proximal, told, mask, kind, *config.correction_bounds)
    fields |= {"behaviour_logp": proximal, "correction": weights.masked_fill(unknown, 1.0)}
    known = mask & ~unknown
    return fields, {
        "correction/weight_mean": float(masked_mean(weights, known)),
        "correction/cut_share": float(masked_mean(cut.float(), known)),
    }
