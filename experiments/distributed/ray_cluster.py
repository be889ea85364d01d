"""`runtime=ray`: engines write and judges judge in actors of a Ray cluster, this process learns.

Ray starts the processes, moves weights, responses and judgements between them, and says which of
them died. What is done, and in which order, is the loop's business as in any run
(`experiments/distributed/ray_engine.py`), so a run's numbers do not depend on where the work was done.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.distributed.single_process import SingleProcess
from experiments.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from experiments.config.schema import RunConfig
    from experiments.engines.base import Engine
    from experiments.engines.weight_sync import WeightSync
    from experiments.rollout.environments import Environments


class RayCluster(SingleProcess):
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

        from experiments.distributed.ray_actor_pool import ActorPool
        from experiments.distributed.ray_actors import EngineActor, JudgeActor

        runtime, alive = self.config.runtime, self._connection.alive
        engine, judge = ray.remote(EngineActor), ray.remote(JudgeActor)
        engine = engine.options(num_cpus=0, num_gpus=self._gpus)
        judge = judge.options(num_cpus=1, scheduling_strategy="SPREAD")
        given = ("runtime=ray", alive)
        self._engines = ActorPool("engines", runtime.engines, lambda at: engine.remote(), *given)
        self._judges = ActorPool("judges", runtime.judges, lambda at: judge.remote(), *given)

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
        from experiments.policy.loading import pick_device

        return int(pick_device(self.config.model.device).type == "cuda")

    def environments(self, config: RunConfig) -> AbstractContextManager[Environments]:
        """Judge actors, each with a sandbox of its own. Raises UserError."""
        from experiments.distributed.ray_judge import RayJudge, environments_of

        return environments_of(self._judges, config, lambda told: RayJudge)

    def engines(
        self, config: RunConfig, model: nn.Module, tokenizer: object
    ) -> Callable[[nn.Module], Engine]:
        """What makes an engine of a module shaped as `model`; all share the same actors."""
        from experiments.distributed.ray_engine import RayEngine, Weights

        crew, weights = self._engines, Weights()
        alone = replace(config, engine=replace(config.engine, colocate=False))  # on its GPU
        crew.prepare = lambda new, finished: [new.open.remote(alone)]
        told = crew.all("open", alone)
        return lambda module: RayEngine(crew, config.engine.name, told[0], weights, module)

    def ahead(self, writer: WeightSync, rollouts: Any, steps: int) -> Callable[[int], None]:
        """What begins batches before the loop comes to them; recorded ones are there already."""
        from experiments.distributed.ray_engine import Prefetcher

        written = hasattr(rollouts, "planned")
        return (
            Prefetcher(writer, rollouts, steps)
            if written
            else super().ahead(writer, rollouts, steps)
        )

    def stop(self) -> None:
        """End the actors; a cluster of this run's own ends with them."""
        self._connection.stop()


# The connection of a run to a Ray cluster: one that `ray start` began, or one of its own.


SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of calls that are asked again
    # Else Ray ends this process a minute after its cluster has gone, and a run without a checkpoint
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(10**6),
}
STARTS = 4  # of a cluster of one's own
ANSWER_S = 30  # for a connection to a busy machine


class Connection:
    """While it lasts, this process is one of the cluster's."""

    def __init__(self, key: str, address: str | None, cpus: int = 0) -> None:
        """`key`: what gave the address; without one Ray is started here, and counts so many CPUs.

        Raises UserError.
        """
        os.environ |= {name: os.environ.get(name, value) for name, value in SETTINGS.items()}
        if address and (Path.home() / ".ray" / "auth_token").is_file():
            os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` then does
        import ray

        with _signals_kept():
            try:
                _check_answers(address)
                _init(**_own(cpus) if address is None else {"address": address})
            except Exception as error:  # Ray raises plain ones too
                told = " ".join(str(error).split("\n")[0].split())
                raise UserError(
                    f"{key}={address}: {told}; `ray start --head` begins a cluster, and {key}=null "
                    "does without one"
                ) from error
        own = ray.get_runtime_context()
        host, _, port = own.gcs_address.rpartition(":")
        here = next(node for node in ray.nodes() if node["NodeID"] == own.get_node_id())
        # Ray's head, and its part of this node: where either has gone, so has the cluster.
        self._needed = [(host, int(port)), (here["NodeManagerAddress"], here["NodeManagerPort"])]

    def alive(self) -> bool:
        """Whether the cluster still answers. Ray's own answer may come a minute late."""
        try:
            for address in self._needed:
                socket.create_connection(address, timeout=ANSWER_S).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End this process's actors; a cluster of its own ends with them."""
        import ray

        with _signals_kept():
            ray.shutdown()


def _check_answers(address: str | None) -> None:
    """Raises OSError at once; Ray tries for minutes, and says so in twenty lines."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()


def _own(cpus: int) -> dict[str, Any]:
    settings = {"worker_niceness": 0, "prestart_worker_first_driver": False}
    return {
        "address": "local",
        "num_cpus": cpus,
        "include_dashboard": False,
        "_system_config": settings,
    }


def _init(**given: Any) -> None:
    """Ray gives its own processes half a minute to start, which a busy machine does not keep to."""
    import ray

    for left in reversed(range(STARTS)):
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **given)
            return
        except Exception as error:
            ray.shutdown()
            if "timed out during startup" not in str(error) or not left:
                raise


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM over, and would end the process three seconds after it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
