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

from experiments.engines.base import Completion, Engine, Sampling
from experiments.runtimes.ranks import Ranks

if TYPE_CHECKING:
    from torch import nn

    from experiments.config import RunConfig
    from experiments.engines.writer import Writer
    from experiments.runtimes.cluster import Cluster
    from experiments.samples.environments import Environments


class Learners(Ranks):
    """Ranks of which the main one has a cluster, once it has joined one."""

    writes = False
    cluster: Cluster | None = None

    def join(self, config: RunConfig) -> None:
        """On the main rank: begin Ray's actors. Raises UserError."""
        from experiments.runtimes.cluster import Cluster

        for name in [name for name in os.environ if name.startswith("TORCHELASTIC_")]:
            del os.environ[name]  # or torch takes an actor for one of torchrun's processes
        self.cluster = Cluster(config)

    def environments(self, config: RunConfig) -> AbstractContextManager[Environments]:
        return self.cluster.environments(config)

    def engines(
        self, config: RunConfig, model: nn.Module, tokenizer: object
    ) -> Callable[[nn.Module], Engine]:
        if self.main:
            return self.cluster.engines(config, model, tokenizer)
        return Bystander

    def ahead(self, writer: Writer, rollouts: Any, steps: int) -> Callable[[int], None]:
        return self.cluster.ahead(writer, rollouts, steps)

    def copy_of(self, model: nn.Module) -> nn.Module:
        """Nothing computes with it here; the other ranks keep only its shapes."""
        from experiments.learner import models

        return models.frozen_copy(model, "cpu" if self.main else "meta")

    def stop(self) -> None:
        if self.cluster:
            self.cluster.stop()
        super().stop()


class Bystander(Engine):
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
