"""`runtime=ray`: Ray actors generate and judge, this process runs the loop and learns.

Ray starts the processes, moves weights, responses and judgements between them, and repeats what an
actor that died had not finished (`max_restarts`, `max_task_retries`). The loop decides what is done
and in which order, as in any run, so a run's numbers do not depend on where the work was done.
"""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from experiments.config.dependencies import set_ray_environment
from experiments.errors import UserError
from experiments.policy.loading import pick_device
from experiments.policy.ranks import SingleRank
from experiments.rollout.environments import Environments
from experiments.rollout.rollouts import Rollouts
from experiments.runtime.ray_actors import EngineActor, JudgeActor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from experiments.config.schema import RunConfig
    from experiments.engines.base import Engine
    from experiments.engines.weight_sync import WeightSync
    from experiments.policy.policy import Policy
    from experiments.rollout.batch_sources import BatchSource

START_ATTEMPTS = 4  # to start a cluster of this run's own: a busy machine takes long
CONNECT_S = 30  # to connect to a busy machine
POLL_S = 2  # how often a wait checks that the cluster is still there
CLOSE_S = 10  # for judges to close their sandboxes
MAX_DEATHS = 3  # of an actor during one call: more is not chance


class Ray(SingleRank):
    """`runtime=ray`: the actors of a run, called by the one process that learns."""

    local_engines = False

    def __init__(self, config: RunConfig) -> None:
        """Start Ray here, or join the cluster at `runtime.address`. Raises UserError."""
        self.config = config
        self._needed = _connect(config.runtime.address, config.runtime.judges)
        self.engine_actors: list[Any] = []
        self.judge_actors: list[Any] = []
        self._gpus = int(pick_device(config.model.device).type == "cuda")  # of each engine
        self._check_resources()

    def _check_resources(self) -> None:
        """Raise UserError if actors would wait for ever for a CPU or a GPU."""
        import ray

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
        import ray

        from experiments.runtime.ray_parts import RayJudge

        restarts = {"max_restarts": -1, "max_task_retries": MAX_DEATHS}
        engine = ray.remote(EngineActor).options(num_cpus=0, num_gpus=self._gpus, **restarts)
        judge = ray.remote(JudgeActor).options(num_cpus=1, scheduling_strategy="SPREAD", **restarts)
        # An actor has a GPU of its own, so there is nothing to colocate with.
        own = ray.put(replace(config, engine=replace(config.engine, colocate=False)))
        self.engine_actors = [engine.remote(own) for _ in range(config.runtime.engines)]
        self._opening = [actor.describe.remote() for actor in self.engine_actors]
        settings = (config.task.environment, config.sandbox, config.judge)
        self.judge_actors = [judge.remote(*settings) for _ in range(config.runtime.judges)]
        made: list[RayJudge] = []

        def make() -> RayJudge:
            made.append(RayJudge(self, len(made), first))
            return made[-1]

        try:
            first, *others = self.take_all([a.describe.remote() for a in self.judge_actors])
            for other in others:
                if (first.name, first.version) != (other.name, other.version):
                    raise UserError(
                        f"runtime=ray: the nodes have different judges, {first.name} "
                        f"({first.version}) and {other.name} ({other.version}); use the same "
                        "Python on all nodes, and sandbox=docker or sandbox=embedded"
                    )
            yield Environments(make, first.name, first.strength)
        finally:
            if self._alive():
                with suppress(ray.exceptions.RayError):
                    last = [actor.close.remote() for actor in self.judge_actors]
                    ray.wait(last, num_returns=len(last), timeout=CLOSE_S)
            self.engine_actors, self.judge_actors = [], []

    def engines(
        self, config: RunConfig, policy: Policy, tokenizer: PreTrainedTokenizerBase
    ) -> Callable[[Policy], Engine]:
        """Return a factory of engines for policies shaped like `policy`; all share the actors."""
        from experiments.runtime.ray_parts import RayEngine, WeightStore

        store, description = WeightStore(), self.take_all(self._opening)[0]
        return lambda policy: RayEngine(self, config.engine.name, description, store, policy)

    def prefetcher(
        self, weight_sync: WeightSync, rollouts: BatchSource, steps: int
    ) -> Callable[[int], None]:
        from experiments.runtime.ray_parts import Prefetcher

        if isinstance(rollouts, Rollouts):
            return Prefetcher(weight_sync, rollouts, steps)
        return lambda step: None  # frozen batches exist already

    def take_all(self, references: Sequence[Any]) -> list[Any]:
        """Wait for results. Raises the error of an actor's call, or UserError."""
        return [self.take(reference) for reference in references]

    def take(self, reference: Any) -> Any:
        """Wait for a result. Raises the error of the actor's call.

        UserError if the cluster has ended, or if actors keep dying during the call.
        """
        import ray

        try:
            while not ray.wait([reference], timeout=POLL_S)[0]:
                if not self._alive():
                    raise self._ended("")
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            reason = (" ".join(str(error).strip().split("\n")[0].split()))[:300]
            if not self._alive():
                raise self._ended(f" ({reason})") from error
            raise UserError(
                f"runtime=ray: an actor died {MAX_DEATHS + 1} times during one call: {reason}; see "
                "`ray logs` and the kernel's log"
            ) from error

    def _ended(self, cause: str) -> UserError:
        return UserError(
            f"runtime=ray: the Ray cluster has ended{cause}; start it again, and resume "
            "with resume=FOLDER"
        )

    def _alive(self) -> bool:
        """Whether the cluster still answers. Ray's own answer may come a minute late."""
        try:
            for address in self._needed:
                socket.create_connection(address, timeout=CONNECT_S).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End the actors; a cluster of this run's own ends with them."""
        import ray

        with _signal_handlers_kept():
            ray.shutdown()


def _connect(address: str | None, cpus: int) -> list[tuple[str, int]]:
    """Join the cluster at `address`, or start one with `cpus` CPUs here. Raises UserError.

    Returns the addresses without which the cluster is gone: its head, and its daemon on this node.
    """
    set_ray_environment(address)
    import ray

    settings: dict[str, Any] = {"address": address}
    if address is None:
        system = {"worker_niceness": 0, "prestart_worker_first_driver": False}
        settings = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
        settings["_system_config"] = system
    host, _, port = (address or "").rpartition(":")
    with _signal_handlers_kept():
        try:
            if host and port.isdecimal():  # at once: Ray tries for minutes and logs twenty lines
                socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
            for attempts_left in reversed(range(START_ATTEMPTS)):
                try:
                    ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)
                    break
                except Exception as error:
                    ray.shutdown()
                    if "timed out during startup" not in str(error) or not attempts_left:
                        raise
        except Exception as error:  # Ray raises plain ones too
            reason = " ".join(str(error).split("\n")[0].split())
            raise UserError(
                f"runtime.address={address}: {reason}; `ray start --head` starts a cluster, "
                "and runtime.address=null runs without one"
            ) from error
    context = ray.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    node = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
    return [(host, int(port)), (node["NodeManagerAddress"], node["NodeManagerPort"])]


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Restore signal handlers. Ray replaces SIGTERM's with one that ends the process in 3 s."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
