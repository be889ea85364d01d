"""Metrics of a batch and of its optimiser steps that are logged for every algorithm."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import torch
from torch import Tensor

from algorithms.base import Batch, PolicyOutput
from algorithms.tensors import group_count, kl, log_ratio, masked_sum
from experiments.errors import UserError
from experiments.learner.modules import NORMS

WEIGHTS, SQUARES, COUNT = "ρ", "ρ²", "tokens"  # sums over a step, from which `ess` is computed
LOG_WEIGHTS = "Σ log ρ"  # of each response of a step, from which `ess_responses` is computed
GRADIENT_WEIGHTS = ("weight/accepted", "weight/rejected", "weight/others")
LEAST_VARIANCE = 1e-12  # reward²: less is rounding


@torch.no_grad()
def common_metrics(
    output: PolicyOutput, batch: Batch, online: int, fresh: int, offline: int
) -> dict[str, Tensor]:
    """Return entropy, KL to the rollout policy, and distances to the reference if there is one.

    `online`, `fresh` and `offline` count such responses of the whole batch.

    - kl_ref: KL(π_θ ‖ π_ref) of a fresh response in nats, by k3 summed over tokens. The rollout
      policy may be some steps older than π_θ, and π_ref may have moved from the initial policy.
    - log_ratio_sum: mean of S(y) = Σ_t log π_θ − log π_ref over fresh responses.
    - offline_log_ratio_sum: mean of S(y) over offline responses (without rollout log-probs), i.e.
      how much more probable the data set's programs have become.
    - kl_writer: KL(π_θ ‖ μ) of an online response, fresh or replayed, in nats: the sum over its
      tokens of ρ log ρ − (ρ − 1), with μ the rollout policy and ρ = π_θ/μ.
    - LOG_WEIGHTS (batch,): Σ_t log ρ of each response, NaN where μ's log-probs are unknown. Each
      token's is clamped as in `log_ratio`.
    """
    entropy = masked_sum(output.entropy, batch.mask).sum() / batch.mask.sum().clamp(min=1)
    metrics = {"entropy": entropy * batch.token_share}
    mask = batch.mask & batch.online.unsqueeze(-1)
    log_rho = log_ratio(output.logp, batch.rollout_logp, mask)
    rho = log_rho.exp()
    metrics["kl_writer"] = masked_sum(rho * log_rho - (rho - 1), mask).sum() / max(1, online)
    metrics[WEIGHTS] = masked_sum(rho, mask).sum()
    metrics[SQUARES] = masked_sum(rho.square(), mask).sum()
    metrics[COUNT] = mask.sum()
    metrics[LOG_WEIGHTS] = log_rho.sum(-1).float().masked_fill(~batch.online, math.nan)
    if batch.ref_logp is not None:
        other = ~(batch.mask & batch.fresh.unsqueeze(-1))
        logp, ref = output.logp.masked_fill(other, 0.0), batch.ref_logp.masked_fill(other, 0.0)
        metrics["kl_ref"] = kl(logp, ref, "k3").sum() / max(1, fresh)
        metrics["log_ratio_sum"] = (logp - ref).sum() / max(1, fresh)
        if offline:
            ratio = masked_sum(output.logp - batch.ref_logp, batch.mask & ~mask)
            metrics["offline_log_ratio_sum"] = ratio.sum() / offline
    return metrics


@torch.no_grad()
def gradient_weights(output: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
    """Return the weight of accepted, rejected and others' responses in the loss's gradient.

    A response's weight is Σ_t |∂L/∂log π(a_t)| over its tokens. It is read from the gradient of
    `output.logp` after the backward pass. Gradients that reach the policy otherwise, such as those
    of an entropy bonus, are not in it. Accepted and rejected are responses with rollout log-probs,
    fresh or replayed, by their verdicts: rewards may have a penalty on length, or noise. Others'
    are the data set's programs.
    """
    slopes = torch.zeros_like(output.logp) if output.logp.grad is None else output.logp.grad
    weights = masked_sum(slopes.abs(), batch.mask)
    parts = (batch.online & batch.accepted, batch.online & ~batch.accepted, ~batch.online)
    return {name: weights[rows].sum() for name, rows in zip(GRADIENT_WEIGHTS, parts, strict=True)}


def batch_metrics(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return means over a batch's steps, and shares of the gradient's weight in all of them.

    Shares are of sums, because a step may have no weight at all. Steps of the critic alone have
    none to share.
    """
    names = dict.fromkeys(name for step in steps for name in step)
    metrics = {
        name: statistics.fmean(step[name] for step in steps if name in step) for name in names
    }
    if metrics.keys() >= set(GRADIENT_WEIGHTS):
        total = sum(metrics[name] for name in GRADIENT_WEIGHTS)
        for name in GRADIENT_WEIGHTS:
            metrics[name] = metrics[name] / total if total else math.nan
    return metrics


def explained_variance(predicted: Tensor, actual: Tensor) -> float:
    """Return 1 − Var(actual − predicted)/Var(actual), (n,) both; NaN if `actual` does not vary.

    Of a critic: the share of the outcomes' variance that its values explain before the batch's
    first step. Every rank has the whole prepared batch's, so neither micro-batches nor ranks change
    the variances.
    """
    predicted, actual = predicted.cpu().double(), actual.cpu().double()
    if not len(actual) or (variance := actual.var(correction=0)) < LEAST_VARIANCE:
        return math.nan
    return 1 - float((actual - predicted).var(correction=0) / variance)


def group_metrics(batch: Batch) -> dict[str, float]:
    """Return the share of the rewards' variance that the group's other responses explain.

    Each response's reward is predicted by the mean of the others': the yardstick of a critic. Only
    kept responses of the run count, not the data set's programs. Nothing with groups of one.
    """
    if batch.group_size < 2:
        return {}
    size, own = batch.group_size, batch.keep & batch.online
    rewards = batch.rewards.masked_fill(~own, 0.0)
    count = group_count(own, size, rewards.dtype)
    total = rewards.view(-1, size).sum(-1).repeat_interleave(size)
    others = (total - rewards) / (count - 1).clamp(min=1)
    compared = own & (count > 1)
    explained = explained_variance(others[compared], rewards[compared])
    return {"value/group_mean_explained": explained}


def effective_share(log_weights: Tensor) -> float:
    """Return (Σw)² / n Σw² in [1/n, 1] of the n weights whose logarithms are not NaN.

    It is the share of n responses that an estimate under the policy is worth; NaN if n is 0.
    """
    known = log_weights[~log_weights.isnan()].double().cpu()
    if not len(known):
        return math.nan
    weights = (known - known.max()).exp()  # the share is the same for c·w, and no weight overflows
    return float(weights.sum() ** 2 / (len(known) * weights.square().sum()))


def step_metrics(totals: dict[str, Tensor], clipping: dict[str, Tensor]) -> dict[str, float]:
    """Return a step's metrics from their sums over micro-batches, and those of its norms.

    Raises UserError if the loss or a gradient norm is not finite.
    """
    share = effective_share(totals.pop(LOG_WEIGHTS))
    result = {name: float(value) for name, value in (totals | clipping).items()}
    result["ess_responses"] = share
    weights, squares, count = (result.pop(name) for name in (WEIGHTS, SQUARES, COUNT))
    # Effective sample size, (Σρ)² / n Σρ²: the share of the online tokens that an estimate under
    # the policy is worth; 1 if the policy generated them.
    result["ess"] = weights**2 / (count * squares) if count else float("nan")
    if not all(math.isfinite(result[name]) for name in ("loss", *NORMS) if name in result):
        norm = result.get("grad_norm", math.nan)
        raise UserError(
            f"loss {result['loss']:g}, gradient norm {norm:g}: the run has "
            "diverged; try a lower algo.learning_rate"
        )
    return result
