"""`runtime=ray`: engines write and judges judge in actors of a Ray cluster, this process learns.

Ray starts the processes, moves weights, responses and judgements between them, and says which of
them died. What is done, and in which order, is the loop's business as in any run
(`experiments/runtimes/proxies.py`), so a run's numbers do not depend on where the work was done.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.errors import UserError
from experiments.runtimes.alone import Alone

if TYPE_CHECKING:
    from torch import nn

    from experiments.config import RunConfig
    from experiments.engines.base import Engine
    from experiments.engines.writer import Writer
    from experiments.runtimes.crew import Call
    from experiments.samples.environments import Environments

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of calls that are asked again
    # Else Ray ends this process a minute after its cluster has gone, and a run without a checkpoint
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(10**6),
}
STARTS = 4  # of a cluster of one's own
ANSWER_S = 30  # for a connection to a busy machine


class Cluster(Alone):
    """The actors of a run, and what stands for them in this process."""

    def __init__(self, config: RunConfig) -> None:
        """Starts Ray here, or joins the cluster at `runtime.address`. Raises UserError."""
        self.config = config
        self._join()
        self._begin()

    def _begin(self) -> None:
        """Start all actors at once: an engine takes a while to read its libraries."""
        import ray

        from experiments.runtimes.actors import EngineActor, JudgeActor
        from experiments.runtimes.crew import Crew

        runtime, gpus = self.config.runtime, self._gpus
        engine, judge = ray.remote(EngineActor), ray.remote(JudgeActor)
        engine = engine.options(num_cpus=0, num_gpus=gpus)
        judge = judge.options(num_cpus=1, scheduling_strategy="SPREAD")
        self._engines = Crew("engines", runtime.engines, engine.remote, self.alive)
        self._judges = Crew("judges", runtime.judges, judge.remote, self.alive)

    def _join(self) -> None:
        runtime = self.config.runtime
        os.environ |= {key: os.environ.get(key, value) for key, value in SETTINGS.items()}
        if runtime.address and (Path.home() / ".ray" / "auth_token").is_file():
            os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` then does
        import ray

        given: dict[str, Any] = {"address": runtime.address}
        if runtime.address is None:
            own = {"worker_niceness": 0, "prestart_worker_first_driver": False}
            given |= {
                "address": "local",
                "num_cpus": runtime.judges,
                "include_dashboard": False,
                "_system_config": own,
            }
        with _signals_kept():
            try:
                _init(**given)
            except Exception as error:  # Ray raises plain ones too
                told = " ".join(str(error).split("\n")[0].split())
                raise UserError(
                    f"runtime.address={runtime.address}: {told}; `ray start --head` begins a "
                    "cluster, and runtime.address=null one for this run alone"
                ) from error
        own = ray.get_runtime_context()
        host, _, port = own.gcs_address.rpartition(":")
        here = next(node for node in ray.nodes() if node["NodeID"] == own.get_node_id())
        # Ray's head, and its part of this node: where either has gone, so has the cluster.
        self._needed = [(host, int(port)), (here["NodeManagerAddress"], here["NodeManagerPort"])]
        self._require()

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

    def alive(self) -> bool:
        """Whether the cluster still answers. Ray's own answer may come a minute late."""
        try:
            for address in self._needed:
                socket.create_connection(address, timeout=ANSWER_S).close()
        except OSError:
            return False
        return True

    @contextmanager
    def environments(self, config: RunConfig) -> Iterator[Environments]:
        """Judge actors, each with a sandbox of its own. Raises UserError."""
        from experiments.runtimes.proxies import RayJudge
        from experiments.samples.environments import Environments

        made: list[RayJudge] = []
        crew, settings = self._judges, (config.task.environment, config.sandbox, config.judge)

        def prepare(new: Any, finished: list[Call]) -> list[Any]:
            known = [(judge.number, judge.known_to(finished)) for judge in made]
            opened = new.open.remote(*settings)
            return [opened, *(new.know.remote(*of) for of in known if of[1] is not None)]

        def make() -> RayJudge:
            made.append(RayJudge(crew, len(made), first["version"], first["known"]))
            return made[-1]

        crew.prepare = prepare
        try:
            first, *others = crew.all("open", *settings)
            for other in others:
                _check_alike(first, other)
            yield Environments(make, first["name"], first["strength"])
        finally:
            crew.end("close")

    def engines(
        self, config: RunConfig, model: nn.Module, tokenizer: object
    ) -> Callable[[nn.Module], Engine]:
        """What makes an engine of a module shaped as `model`; all share the same actors."""
        from experiments.runtimes.proxies import RayEngine, Weights

        crew, weights = self._engines, Weights()
        crew.prepare = lambda new, finished: [new.open.remote(config)]
        told = crew.all("open", config)
        return lambda module: RayEngine(crew, config.engine.name, told[0], weights, module)

    def ahead(self, writer: Writer, rollouts: Any, steps: int) -> Callable[[int], None]:
        """What begins batches before the loop comes to them; recorded ones are there already."""
        from experiments.runtimes.proxies import Ahead

        written = hasattr(rollouts, "planned")
        return Ahead(writer, rollouts, steps) if written else super().ahead(writer, rollouts, steps)

    def stop(self) -> None:
        """End the actors; a cluster of this run's own ends with them."""
        import ray

        with _signals_kept():
            ray.shutdown()


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


def _check_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Raises UserError where two judges could say different things of one program."""
    told = [f"{of['name']} ({of['version']})" for of in (one, other)]
    if told[0] != told[1]:
        raise UserError(
            f"runtime=ray: the nodes judge differently, {told[0]} and {told[1]}: they need the "
            "same Python, and sandbox=docker or sandbox=embedded for all of them"
        )


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM over, and would end the process three seconds after it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
