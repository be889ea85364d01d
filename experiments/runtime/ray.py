"""`runtime=ray`: Ray actors generate and judge, this process runs the loop and learns.

Ray starts the processes, moves weights, responses and judgements between them, and repeats what an
actor that died had not finished (`max_restarts`, `max_task_retries`). The loop decides what is done
and in which order, as in any run, so a run's numbers do not depend on where the work was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import ray
from transformers import PreTrainedTokenizerBase

from experiments.config.schema import RunConfig
from experiments.engines.base import Engine
from experiments.engines.weight_sync import WeightSync
from experiments.errors import UserError
from experiments.policy.loading import pick_device
from experiments.policy.policy import Policy
from experiments.policy.ranks import SingleRank
from experiments.rollout.environments import Environments
from experiments.rollout.rollouts import BatchSource, Rollouts
from experiments.runtime.ray_actors import EngineActor, JudgeActor
from experiments.runtime.ray_cluster import MAX_DEATHS, Cluster
from experiments.runtime.ray_parts import Prefetcher, RayEngine, RayJudge, WeightStore

CLOSE_S = 10  # for judges to close their sandboxes


class Ray(SingleRank):
    """`runtime=ray`: the actors of a run, called by the one process that learns."""

    local_engines = False

    def __init__(self, config: RunConfig) -> None:
        """Start Ray here, or join the cluster at `runtime.address`. Raises UserError."""
        self.config = config
        self._cluster = Cluster(config.runtime.address, config.runtime.judges)
        self.engine_actors: list[Any] = []
        self.judge_actors: list[Any] = []
        self._gpus = int(pick_device(config.model.device).type == "cuda")  # of each engine
        self._check_resources()

    def _check_resources(self) -> None:
        """Raise UserError if actors would wait for ever for a CPU or a GPU."""
        available, runtime = ray.cluster_resources(), self.config.runtime
        for key, kind, required in (
            ("judges", "CPU", runtime.judges),
            ("engines", "GPU", runtime.engines * self._gpus),
        ):
            if required > available.get(kind, 0):
                self.stop()
                raise UserError(
                    f"runtime.{key}={getattr(runtime, key)}: the Ray cluster has "
                    f"{available.get(kind, 0):g} {kind}s, and each of them needs one; lower it, or "
                    "add nodes with `ray start --address=...`"
                )

    @contextmanager
    def environments(self, config: RunConfig) -> Iterator[Environments]:
        """Start all actors at once, and open the judges' sandboxes. Raises UserError."""
        # A call is repeated without limit: until Ray finds that a node is lost, each failed
        # connection to an actor there counts as a try.
        restarts = {"max_restarts": MAX_DEATHS, "max_task_retries": -1}
        engine = ray.remote(EngineActor).options(num_cpus=0, num_gpus=self._gpus, **restarts)
        judge = ray.remote(JudgeActor).options(num_cpus=1, scheduling_strategy="SPREAD", **restarts)
        # An actor has a GPU of its own, so there is nothing to colocate with.
        own = replace(config, engine=replace(config.engine, colocate=False))
        self.engine_actors = [engine.remote(own) for _ in range(config.runtime.engines)]
        self._opening = [actor.describe.remote() for actor in self.engine_actors]
        settings = (config.task.environment, config.sandbox, config.judge)
        self.judge_actors = [judge.remote(*settings) for _ in range(config.runtime.judges)]
        made: list[RayJudge] = []

        def make() -> RayJudge:
            made.append(RayJudge(self._cluster, self.judge_actors, len(made), first))
            return made[-1]

        try:
            described = [actor.describe.remote() for actor in self.judge_actors]
            first, *others = self._cluster.take_all(described)
            for other in others:
                if (first.name, first.version) != (other.name, other.version):
                    raise UserError(
                        f"runtime=ray: the nodes have different judges, {first.name} "
                        f"({first.version}) and {other.name} ({other.version}); use the same "
                        "Python on all nodes, and sandbox=docker or sandbox=embedded"
                    )
            yield Environments(make, first.name, first.strength)
        finally:
            if self._cluster.alive():
                with suppress(ray.exceptions.RayError):
                    last = [actor.close.remote() for actor in self.judge_actors]
                    ray.wait(last, num_returns=len(last), timeout=CLOSE_S)
            self.engine_actors, self.judge_actors = [], []

    def engines(
        self, config: RunConfig, policy: Policy, tokenizer: PreTrainedTokenizerBase
    ) -> Callable[[Policy], Engine]:
        """Return a factory of engines for policies shaped like `policy`; all share the actors."""
        store, description = WeightStore(), self._cluster.take_all(self._opening)[0]
        return lambda policy: RayEngine(
            self._cluster, self.engine_actors, config.engine.name, description, store, policy
        )

    def prefetcher(
        self, weight_sync: WeightSync, rollouts: BatchSource, steps: int
    ) -> Callable[[int], None]:
        if isinstance(rollouts, Rollouts):
            return Prefetcher(weight_sync, rollouts, steps)
        return lambda step: None  # frozen batches exist already

    def stop(self) -> None:
        """End the actors; a cluster of this run's own ends with them."""
        self._cluster.stop()
