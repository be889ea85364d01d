"""`runtime=ray`: engines write and judges judge in actors of a Ray cluster, this process learns.

Ray starts the processes, moves weights, responses and judgements between them, and says which of
them died. What is done, and in which order, is the loop's business as in any run
(`experiments/runtimes/proxies.py`), so a run's numbers do not depend on where the work was done.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from experiments.errors import UserError
from experiments.runtimes.alone import Alone
from experiments.runtimes.connection import Connection

if TYPE_CHECKING:
    from torch import nn

    from experiments.config import RunConfig
    from experiments.engines.base import Engine
    from experiments.engines.writer import Writer
    from experiments.samples.environments import Environments


class Cluster(Alone):
    """The actors of a run, and what stands for them in this process."""

    def __init__(self, config: RunConfig) -> None:
        """Starts Ray here, or joins the cluster at `runtime.address`. Raises UserError."""
        self.config = config
        runtime = config.runtime
        self._connection = Connection("runtime.address", runtime.address, runtime.judges)
        self._require()
        self._begin()

    def _begin(self) -> None:
        """Start all actors at once: an engine takes a while to read its libraries."""
        import ray

        from experiments.runtimes.actors import EngineActor, JudgeActor
        from experiments.runtimes.crew import Crew

        runtime, alive = self.config.runtime, self._connection.alive
        engine, judge = ray.remote(EngineActor), ray.remote(JudgeActor)
        engine = engine.options(num_cpus=0, num_gpus=self._gpus)
        judge = judge.options(num_cpus=1, scheduling_strategy="SPREAD")
        given = ("runtime=ray", alive)
        self._engines = Crew("engines", runtime.engines, lambda at: engine.remote(), *given)
        self._judges = Crew("judges", runtime.judges, lambda at: judge.remote(), *given)

    def _require(self) -> None:
        """Raises UserError where actors would wait for ever for a place."""
        import ray

        there, runtime = ray.cluster_resources(), self.config.runtime
        for key, kind, asked in (
            ("judges", "CPU", runtime.judges),
            ("engines", "GPU", runtime.engines * self._gpus),
        ):
            if asked > there.get(kind, 0):
                self.stop()
                raise UserError(
                    f"runtime.{key}={getattr(runtime, key)}: the Ray cluster has "
                    f"{there.get(kind, 0):g} {kind}s, one is needed for each; lower it, or let "
                    "further nodes join with `ray start --address=...`"
                )

    @property
    def _gpus(self) -> int:
        """Of an engine."""
        from experiments.learner.models import pick_device

        return int(pick_device(self.config.model.device).type == "cuda")

    def environments(self, config: RunConfig) -> AbstractContextManager[Environments]:
        """Judge actors, each with a sandbox of its own. Raises UserError."""
        from experiments.runtimes.judging import RayJudge, environments_of

        return environments_of(self._judges, config, lambda told: RayJudge)

    def engines(
        self, config: RunConfig, model: nn.Module, tokenizer: object
    ) -> Callable[[nn.Module], Engine]:
        """What makes an engine of a module shaped as `model`; all share the same actors."""
        from experiments.runtimes.proxies import RayEngine, Weights

        crew, weights = self._engines, Weights()
        alone = replace(config, engine=replace(config.engine, colocate=False))  # on its GPU
        crew.prepare = lambda new, finished: [new.open.remote(alone)]
        told = crew.all("open", alone)
        return lambda module: RayEngine(crew, config.engine.name, told[0], weights, module)

    def ahead(self, writer: Writer, rollouts: Any, steps: int) -> Callable[[int], None]:
        """What begins batches before the loop comes to them; recorded ones are there already."""
        from experiments.runtimes.proxies import Ahead

        written = hasattr(rollouts, "planned")
        return Ahead(writer, rollouts, steps) if written else super().ahead(writer, rollouts, steps)

    def stop(self) -> None:
        """End the actors; a cluster of this run's own ends with them."""
        self._connection.stop()
