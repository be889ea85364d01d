"""What every algorithm logs of an optimiser step, besides its own."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from algorithms.base import Batch, PolicyOutput
from algorithms.tensors import kl, log_ratio, masked_sum
from experiments.errors import UserError

WEIGHTS, SQUARES, COUNT = "ρ", "ρ²", "tokens"  # sums over a step, of which `sample_size` is made


@torch.no_grad()
def common_metrics(
    output: PolicyOutput, batch: Batch, online: int, fresh: int, offline: int
) -> dict[str, Tensor]:
    """What every algorithm logs: entropy, and the distance to the reference where there is one.

    kl_ref is KL(π_θ ‖ π_ref) of whole responses in nats, by k3 summed over tokens; log_ratio_sum is
    the mean of S(y) = Σ_t log π_θ − log π_ref. Both over the `fresh` responses of the whole batch,
    whose writer may be some steps older than π_θ; offline_log_ratio_sum is the mean of S(y) over
    its `offline` ones, whose writer told no log-probs: how much more probable the data set's
    programs have become. Over its `online` ones, fresh and replayed, kl_writer is
    KL(π_θ ‖ μ) of a response in nats, a sum over its tokens of ρ log ρ − (ρ − 1), ρ = π_θ/μ.
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
        new = batch.mask & batch.fresh.unsqueeze(-1)
        logp, ref = output.logp.masked_fill(~new, 0.0), batch.ref_logp.masked_fill(~new, 0.0)
        metrics["kl_ref"] = kl(logp, ref, "k3").sum() / max(1, fresh)
        metrics["log_ratio_sum"] = (logp - ref).sum() / max(1, fresh)
        if offline:
            ratio = masked_sum(output.logp - batch.ref_logp, batch.mask & ~mask)
            metrics["offline_log_ratio_sum"] = ratio.sum() / offline
    return metrics


def whole_step(totals: dict[str, Tensor], norms: dict[str, Tensor]) -> dict[str, float]:
    """A step's metrics from their sums over micro-batches; a UserError where one is not finite."""
    result = {name: float(value) for name, value in (totals | norms).items()}
    result |= sample_size(result)
    if not all(math.isfinite(result[name]) for name in ("loss", *norms)):
        raise UserError(
            f"loss {result['loss']:g}, gradient norm {result['grad_norm']:g}: the run has "
            "diverged; try a lower algo.learning_rate"
        )
    return result


def sample_size(totals: dict[str, float]) -> dict[str, float]:
    """Takes the sums over ρ out of a step's totals → ess, (Σρ)² / n Σρ² over the online tokens.

    The share of them that an estimate under the policy is worth; 1 where the policy wrote them.
    """
    weights, squares, count = (totals.pop(name) for name in (WEIGHTS, SQUARES, COUNT))
    return {"ess": weights**2 / (count * squares) if count else float("nan")}
