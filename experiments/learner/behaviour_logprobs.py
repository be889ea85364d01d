"""Behaviour log-probs of a batch and their importance corrections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from algorithms.base import Batch
from algorithms.tensors import correction_weights, masked_mean
from experiments.learner.batching import pad_rows
from experiments.learner.forward import Tokens
from experiments.sample import Sample

if TYPE_CHECKING:
    from experiments.config.schema import TrainConfig


@dataclass(frozen=True)
class BehaviourLogprobs:
    """Log-probs of the policies that a batch's ratios are taken against, (batch, time) each."""

    rollout: Tensor  # of the rollout policy; 0 where they are unknown
    behaviour: Tensor  # the ratio's denominator: the rollout policy's, or the proximal policy's
    correction: Tensor | None  # importance weights of the ratio's terms
    metrics: dict[str, float]  # of the correction


def behaviour_logprobs(
    samples: Sequence[Sample],
    tokens: Tokens,
    config: TrainConfig,
    logp: Callable[[Tokens], Tensor],
    ref_logp: Callable[[Tokens], Tensor],
) -> BehaviourLogprobs:
    """Collect a batch's behaviour log-probs, and correct them if `train.correction` says so.

    Samples without log-probs get 0, or, by `train.missing_logprobs`, those of the policy or the
    reference, which `logp` and `ref_logp` compute.
    """
    mask, kind = tokens.own, config.correction
    rollout = pad_rows([sample.logps or () for sample in samples], mask)
    missing = torch.tensor([[sample.logps is None] for sample in samples], device=mask.device)
    if missing.any() and config.missing_logprobs != "reject":
        computed = logp(tokens) if config.missing_logprobs == "recomputed" else ref_logp(tokens)
        rollout, missing = torch.where(missing, computed, rollout), missing & False
    if kind == "none":
        return BehaviourLogprobs(rollout, rollout, None, {})
    proximal = logp(tokens)
    weights, cut = correction_weights(proximal, rollout, mask, kind, *config.correction_bounds)
    corrected = mask & ~missing
    return BehaviourLogprobs(
        rollout=rollout,
        behaviour=proximal,
        correction=weights.masked_fill(missing, 1.0),
        metrics={
            "correction/weight_mean": float(masked_mean(weights, corrected)),
            "correction/cut_share": float(masked_mean(cut.float(), corrected)),
        },
    )


def with_current_weights(batch: Batch, logp: Tensor, config: TrainConfig) -> Batch:
    """Return the rows with importance weights of the policy at this step, detached.

    `logp`: the policy's in training (batch, time). Rows without rollout log-probs keep weight 1,
    unless they have a substitute, which then counts as their rollout policy.
    """
    weights, _ = correction_weights(
        logp.detach(), batch.rollout_logp, batch.mask, config.correction, *config.correction_bounds
    )
    known = batch.mask
    if config.missing_logprobs == "reject":  # else `rollout_logp` has a substitute for them
        known = known & batch.online.unsqueeze(-1)
    return replace(batch, correction=weights.masked_fill(~known, 1.0))
