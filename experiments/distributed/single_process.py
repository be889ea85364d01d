"""A run in one process, which learns, generates and judges."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from experiments.runtime import SingleRank

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from experiments.config.schema import RunConfig
    from experiments.engines.base import Engine
    from experiments.engines.weight_sync import WeightSync
    from experiments.policy.policy import Policy
    from experiments.rollout.batch_sources import BatchSource
    from experiments.rollout.environments import Environments


class LocalWorkers:
    """Engines and judges beside the learner, in its process."""

    local_engines = True

    def environments(self, config: RunConfig) -> AbstractContextManager[Environments]:
        from experiments.rollout.environments import open_environments

        return open_environments(config)

    def engines(
        self, config: RunConfig, policy: Policy, tokenizer: PreTrainedTokenizerBase
    ) -> Callable[[Policy], Engine]:
        from experiments.engines.factory import open_engines

        return open_engines(config, policy, tokenizer)

    def prefetcher(
        self, weight_sync: WeightSync, rollouts: BatchSource, steps: int
    ) -> Callable[[int], None]:
        """Nothing is prefetched: the process does one thing at a time."""
        return lambda step: None


class SingleProcess(LocalWorkers, SingleRank):
    """`runtime=sync`: one process does everything."""


SINGLE_PROCESS = SingleProcess()
