"""`runtime=ray`: Ray actors generate and judge, this process runs the loop and learns.

Ray starts the processes, moves weights, responses and judgements between them, and reports which of
them died. The loop decides what is done and in which order, as in any run (`ray_engine.py`), so a
run's numbers do not depend on where the work was done.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.errors import UserError
from experiments.policy.ranks import SingleRank

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from experiments.config.schema import RunConfig
    from experiments.engines.base import Engine
    from experiments.engines.weight_sync import WeightSync
    from experiments.policy.policy import Policy
    from experiments.rollout.batch_sources import BatchSource
    from experiments.rollout.environments import Environments

START_ATTEMPTS = 4  # to start a cluster of this run's own
CONNECT_S = 30  # to connect to a busy machine
RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of calls that are submitted again
    # Otherwise Ray ends this process a minute after its cluster has gone, without a checkpoint.
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(10**6),
}


def set_ray_environment(address: str | None) -> None:
    """Set what Ray reads from the environment. Call it before Ray is imported."""
    os.environ |= {name: os.environ.get(name, value) for name, value in RAY_SETTINGS.items()}
    if address and (Path.home() / ".ray" / "auth_token").is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` then does


class Ray(SingleRank):
    """`runtime=ray`: the actors of a run, called by the one process that learns."""

    local_engines = False

    def __init__(self, config: RunConfig) -> None:
        """Start Ray here, or join the cluster at `runtime.address`. Raises UserError."""
        self.config = config
        self._connection = Connection(config.runtime.address, config.runtime.judges)
        self._check_resources()
        self._start_actors()

    def _start_actors(self) -> None:
        """Start all actors at once: an engine takes a while to import its libraries."""
        import ray

        from experiments.runtime.ray_actor_pool import ActorPool
        from experiments.runtime.ray_workers import EngineActor, JudgeActor

        runtime, alive = self.config.runtime, self._connection.alive
        engine, judge = ray.remote(EngineActor), ray.remote(JudgeActor)
        engine = engine.options(num_cpus=0, num_gpus=self._gpus_per_engine)
        judge = judge.options(num_cpus=1, scheduling_strategy="SPREAD")
        self._engines = ActorPool("engines", runtime.engines, engine.remote, alive)
        self._judges = ActorPool("judges", runtime.judges, judge.remote, alive)

    def _check_resources(self) -> None:
        """Raise UserError if actors would wait for ever for a CPU or a GPU."""
        import ray

        available, runtime = ray.cluster_resources(), self.config.runtime
        for key, kind, required in (
            ("judges", "CPU", runtime.judges),
            ("engines", "GPU", runtime.engines * self._gpus_per_engine),
        ):
            if required > available.get(kind, 0):
                self.stop()
                raise UserError(
                    f"runtime.{key}={getattr(runtime, key)}: the Ray cluster has "
                    f"{available.get(kind, 0):g} {kind}s, and each of them needs one; lower it, or "
                    "add nodes with `ray start --address=...`"
                )

    @property
    def _gpus_per_engine(self) -> int:
        from experiments.policy.loading import pick_device

        return int(pick_device(self.config.model.device).type == "cuda")

    def environments(self, config: RunConfig) -> AbstractContextManager[Environments]:
        """Open judge actors, each with a sandbox of its own. Raises UserError."""
        from experiments.runtime.ray_judge import open_ray_environments

        return open_ray_environments(self._judges, config)

    def engines(
        self, config: RunConfig, policy: Policy, tokenizer: PreTrainedTokenizerBase
    ) -> Callable[[Policy], Engine]:
        """Return a factory of engines for policies shaped like `policy`; all share the actors."""
        from experiments.runtime.ray_engine import RayEngine, WeightStore

        pool, store = self._engines, WeightStore()
        # An actor has a GPU of its own, so there is nothing to colocate with.
        actor_config = replace(config, engine=replace(config.engine, colocate=False))
        pool.prepare = lambda actor, finished: [actor.open.remote(actor_config)]
        name, description = config.engine.name, pool.call_all("open", actor_config)[0]
        return lambda policy: RayEngine(pool, name, description, store, policy)

    def prefetcher(
        self, weight_sync: WeightSync, rollouts: BatchSource, steps: int
    ) -> Callable[[int], None]:
        from experiments.rollout.rollouts import Rollouts
        from experiments.runtime.ray_engine import Prefetcher

        if isinstance(rollouts, Rollouts):
            return Prefetcher(weight_sync, rollouts, steps)
        return lambda step: None  # frozen batches exist already

    def stop(self) -> None:
        """End the actors; a cluster of this run's own ends with them."""
        self._connection.stop()


class Connection:
    """This process's membership in a Ray cluster: one from `ray start`, or one of its own."""

    def __init__(self, address: str | None, cpus: int = 0) -> None:
        """Join the cluster at `address`, or start one with `cpus` CPUs here. Raises UserError."""
        set_ray_environment(address)
        import ray

        with _signal_handlers_kept():
            try:
                _check_answers(address)
                _init(**_local_settings(cpus) if address is None else {"address": address})
            except Exception as error:  # Ray raises plain ones too
                reason = " ".join(str(error).split("\n")[0].split())
                raise UserError(
                    f"runtime.address={address}: {reason}; `ray start --head` starts a cluster, "
                    "and runtime.address=null runs without one"
                ) from error
        context = ray.get_runtime_context()
        host, _, port = context.gcs_address.rpartition(":")
        node = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
        # Ray's head, and its daemon on this node: without either the cluster is gone.
        self._needed = [(host, int(port)), (node["NodeManagerAddress"], node["NodeManagerPort"])]

    def alive(self) -> bool:
        """Whether the cluster still answers. Ray's own answer may come a minute late."""
        try:
            for address in self._needed:
                socket.create_connection(address, timeout=CONNECT_S).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End this process's actors; a cluster of its own ends with them."""
        import ray

        with _signal_handlers_kept():
            ray.shutdown()


def _check_answers(address: str | None) -> None:
    """Raise OSError at once if nothing answers. Ray tries for minutes and logs twenty lines."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()


def _local_settings(cpus: int) -> dict[str, Any]:
    settings = {"worker_niceness": 0, "prestart_worker_first_driver": False}
    return {
        "address": "local",
        "num_cpus": cpus,
        "include_dashboard": False,
        "_system_config": settings,
    }


def _init(**settings: Any) -> None:
    """Call ray.init, again after a timeout: a busy machine exceeds Ray's half minute to start."""
    import ray

    for attempts_left in reversed(range(START_ATTEMPTS)):
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)
            return
        except Exception as error:
            ray.shutdown()
            if "timed out during startup" not in str(error) or not attempts_left:
                raise


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Restore signal handlers. Ray replaces SIGTERM's with one that ends the process in 3 s."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
