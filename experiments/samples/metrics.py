"""What is told of a batch's samples before anything is learnt from them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from experiments.samples.sample import Sample


def sample_metrics(samples: Sequence[Sample], version: int) -> dict[str, Any]:
    """Rewards and lengths of what a policy wrote for this batch; NaN where there is none.

    `version`: of the weights that are about to learn from them. Lags are of this run's own
    responses, replayed ones too.
    """
    fresh = [sample for sample in samples if sample.fresh]
    nan = float("nan")
    rewards = [sample.reward for sample in fresh]
    lags = [version - s.origin.version for s in samples if s.origin.source == "policy"]
    return {
        "reward_mean": statistics.fmean(rewards) if fresh else nan,
        "reward_std": statistics.pstdev(rewards) if fresh else nan,
        "accepted_share": statistics.fmean(s.accepted for s in fresh) if fresh else nan,
        "response_tokens_mean": statistics.fmean(len(s.tokens) for s in fresh) if fresh else nan,
        "truncated_share": statistics.fmean(s.truncated for s in fresh) if fresh else nan,
        "offline_share": sum(s.offline for s in samples) / len(samples) if samples else nan,
        "sample_lag_mean": statistics.fmean(lags) if lags else nan,
        "sample_lag_max": max(lags, default=nan),
    }
