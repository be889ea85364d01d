"""What a batch's rewards become for the learner alone: by length (HAPO), by noise (ReDit).

Both say more than a judgement does: one remembers the batches before, the other draws. So they come
after a batch is kept, stored for replay and measured, all of which know the judgement's reward.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from envs.reward import RewardConfig, conciseness_reward
from experiments.sample import Sample
from experiments.seeds import stream


@dataclass
class RewardShaping:
    """Remembers the shortest accepted response that a policy wrote to each problem."""

    config: RewardConfig
    seed: int
    shortest: dict[str, int] = field(default_factory=dict)  # problem → tokens, EOS included

    def shape(self, samples: Sequence[Sample], step: int) -> Sequence[Sample]:
        """The batch of `step` with the rewards that it is learned from.

        Lengths are compared with those of the batches before, as its authors do. People's programs
        are paid like any; they do not count as the shortest, since they are no policy's.
        """
        if not self.config.shapes_batches:
            return samples
        noise = stream(self.seed, "dither", step)
        paid = [
            replace(s, reward=s.reward + self._by_length(s) + noise.gauss(0, self.config.dither))
            for s in samples
        ]
        for sample in samples:
            if sample.accepted and not sample.offline:
                name, tokens = sample.prompt.problem.name, len(sample.tokens)
                self.shortest[name] = min(tokens, self.shortest.get(name, tokens))
        return paid

    def _by_length(self, sample: Sample) -> float:
        shortest = self.shortest.get(sample.prompt.problem.name)
        given = (len(sample.tokens), shortest, sample.accepted)
        return self.config.conciseness * conciseness_reward(*given)

    def state_dict(self) -> dict[str, Any]:
        """What is remembered."""
        return {"shortest": dict(self.shortest)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        self.shortest = dict(state["shortest"])


# What is told of a batch's samples before anything is learnt from them.


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
