"""What is told of a batch's samples before anything is learnt from them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from experiments.samples.sample import Sample


def sample_metrics(samples: Sequence[Sample], version: int) -> dict[str, Any]:
    """Rewards and lengths of the responses that a policy wrote; NaN where there are none.

    `version`: of the weights that are about to learn from them.
    """
    online = [sample for sample in samples if not sample.offline]
    nan = float("nan")
    rewards = [sample.reward for sample in online]
    lags = [version - s.origin.version for s in samples if s.origin.version is not None]
    return {
        "reward_mean": statistics.fmean(rewards) if online else nan,
        "reward_std": statistics.pstdev(rewards) if online else nan,
        "accepted_share": statistics.fmean(s.accepted for s in online) if online else nan,
        "response_tokens_mean": statistics.fmean(len(s.tokens) for s in online) if online else nan,
        "truncated_share": statistics.fmean(s.truncated for s in online) if online else nan,
        "offline_share": 1 - len(online) / len(samples) if samples else nan,
        "sample_lag_mean": statistics.fmean(lags) if lags else nan,
        "sample_lag_max": max(lags, default=nan),
    }
