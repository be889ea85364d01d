"""`runtime=ray` under torchrun: its ranks share the learner, Ray's actors write and judge.

The main rank runs the loop and asks the actors, as in a run without other ranks. What the others
are told is the learner's work, and to gather the weights whenever the actors are to have new ones:
what these are to have is whole on the main rank alone, in the host's memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from experiments.distributed.torchrun import Torchrun
from experiments.engines.base import Completion, Engine, Sampling

if TYPE_CHECKING:
    from torch import nn

    from experiments.config.schema import RunConfig
    from experiments.distributed.ray_cluster import RayCluster
    from experiments.engines.weight_sync import WeightSync
    from experiments.rollout.environments import Environments


class TorchrunRay(Torchrun):
    """Ranks of which the main one has a cluster, once it has joined one."""

    writes = False
    cluster: RayCluster | None = None

    def join(self, config: RunConfig) -> None:
        """On the main rank: begin Ray's actors. Raises UserError."""
        from experiments.distributed.ray_cluster import RayCluster

        for name in [name for name in os.environ if name.startswith("TORCHELASTIC_")]:
            del os.environ[name]  # or torch takes an actor for one of torchrun's processes
        self.cluster = RayCluster(config)

    def environments(self, config: RunConfig) -> AbstractContextManager[Environments]:
        return self.cluster.environments(config)

    def engines(
        self, config: RunConfig, model: nn.Module, tokenizer: object
    ) -> Callable[[nn.Module], Engine]:
        if self.main:
            return self.cluster.engines(config, model, tokenizer)
        return NullEngine

    def ahead(self, writer: WeightSync, rollouts: Any, steps: int) -> Callable[[int], None]:
        return self.cluster.ahead(writer, rollouts, steps)

    def copy_of(self, model: nn.Module) -> nn.Module:
        """Nothing computes with it here; the other ranks keep only its shapes."""
        from experiments.policy import loading

        return loading.frozen_copy(model, "cpu" if self.main else "meta")

    def stop(self) -> None:
        if self.cluster:
            self.cluster.stop()
        super().stop()


class NullEngine(Engine):
    """On a rank that does not write: takes part where weights are gathered, and keeps none."""

    name = "none"

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def sync(self, model: nn.Module) -> None:
        self._copy(model)

    def generate(
        self, prompts: Sequence[Sequence[int]], seeds: Any, sampling: Sampling, finished: Any = None
    ) -> list[list[Completion]]:
        raise RuntimeError("this rank does not write")
