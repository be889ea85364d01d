"""How a run is distributed: where its learner, its engines and its judges run.

`Runtime` is the interface. `SingleProcess` (`runtime=sync`), `Torchrun`, `Ray` and `TorchrunRay`
implement it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from experiments.config.schema import RunConfig
from experiments.engines.base import Engine
from experiments.engines.factory import open_engines
from experiments.engines.weight_sync import WeightSync
from experiments.policy.policy import Policy
from experiments.policy.ranks import RankGroup, SingleRank
from experiments.rollout.environments import Environments, open_environments
from experiments.rollout.rollouts import BatchSource


class Runtime(RankGroup, Protocol):
    """A learner's ranks, and the engines and judges that work for them."""

    local_engines: bool  # whether each rank has an engine and a judge of its own

    def environments(self, config: RunConfig) -> AbstractContextManager[Environments]:
        """Open the judges of a run; they close with the block. Raises UserError."""

    def engines(
        self, config: RunConfig, policy: Policy, tokenizer: PreTrainedTokenizerBase
    ) -> Callable[[Policy], Engine]:
        """Return a factory of engines for policies shaped like `policy`. Raises UserError."""

    def prefetcher(
        self, weight_sync: WeightSync, rollouts: BatchSource, steps: int
    ) -> Callable[[int], None]:
        """Return a function to call before batch `step` is collected.

        It starts that batch and later ones where their weights exist already.
        """


class LocalWorkers:
    """Engines and judges beside the learner, in its process."""

    local_engines = True

    def environments(self, config: RunConfig) -> AbstractContextManager[Environments]:
        return open_environments(config)

    def engines(
        self, config: RunConfig, policy: Policy, tokenizer: PreTrainedTokenizerBase
    ) -> Callable[[Policy], Engine]:
        return open_engines(config, policy, tokenizer)

    def prefetcher(
        self, weight_sync: WeightSync, rollouts: BatchSource, steps: int
    ) -> Callable[[int], None]:
        """Nothing is prefetched: the process does one thing at a time."""
        return lambda step: None


class SingleProcess(LocalWorkers, SingleRank):
    """`runtime=sync`: one process does everything."""


SINGLE_PROCESS = SingleProcess()
