"""Metrics of an optimiser step that are logged for every algorithm."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from algorithms.base import Batch, PolicyOutput
from algorithms.tensors import kl, log_ratio, masked_sum
from experiments.errors import UserError

WEIGHTS, SQUARES, COUNT = "ρ", "ρ²", "tokens"  # sums over a step, from which `ess` is computed


@torch.no_grad()
def common_metrics(
    output: PolicyOutput, batch: Batch, online: int, fresh: int, offline: int
) -> dict[str, Tensor]:
    """Return entropy, KL to the rollout policy, and distances to the reference if there is one.

    `online`, `fresh` and `offline` count such responses of the whole batch.

    - kl_ref: KL(π_θ ‖ π_ref) of a fresh response in nats, by k3 summed over tokens. The rollout
      policy may be some steps older than π_θ.
    - log_ratio_sum: mean of S(y) = Σ_t log π_θ − log π_ref over fresh responses.
    - offline_log_ratio_sum: mean of S(y) over offline responses (without rollout log-probs), i.e.
      how much more probable the data set's programs have become.
    - kl_writer: KL(π_θ ‖ μ) of an online response, fresh or replayed, in nats: the sum over its
      tokens of ρ log ρ − (ρ − 1), with μ the rollout policy and ρ = π_θ/μ.
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
    if batch.ref_logp is not None:
        other = ~(batch.mask & batch.fresh.unsqueeze(-1))
        logp, ref = output.logp.masked_fill(other, 0.0), batch.ref_logp.masked_fill(other, 0.0)
        metrics["kl_ref"] = kl(logp, ref, "k3").sum() / max(1, fresh)
        metrics["log_ratio_sum"] = (logp - ref).sum() / max(1, fresh)
        if offline:
            ratio = masked_sum(output.logp - batch.ref_logp, batch.mask & ~mask)
            metrics["offline_log_ratio_sum"] = ratio.sum() / offline
    return metrics


def step_metrics(totals: dict[str, Tensor], norms: dict[str, Tensor]) -> dict[str, float]:
    """Return a step's metrics from their sums over micro-batches.

    Raises UserError if the loss or a gradient norm is not finite.
    """
    result = {name: float(value) for name, value in (totals | norms).items()}
    weights, squares, count = (result.pop(name) for name in (WEIGHTS, SQUARES, COUNT))
    # Effective sample size, (Σρ)² / n Σρ²: the share of the online tokens that an estimate under
    # the policy is worth; 1 if the policy generated them.
    result["ess"] = weights**2 / (count * squares) if count else float("nan")
    if not all(math.isfinite(result[name]) for name in ("loss", *norms)):
        raise UserError(
            f"loss {result['loss']:g}, gradient norm {result['grad_norm']:g}: the run has "
            "diverged; try a lower algo.learning_rate"
        )
    return result
