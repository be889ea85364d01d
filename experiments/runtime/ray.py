"""`runtime=ray`: Ray actors generate and judge, this process runs the loop and learns.

Ray starts the processes, moves weights, responses and judgements between them, and repeats what an
actor that died had not finished (`max_restarts`, `max_task_retries`). The loop decides what is done
and in which order, as in any run, so a run's numbers do not depend on where the work was done.

A batch's responses depend on weights, prompts and seeds alone. Its verdicts depend on those and on
all earlier judging, in order. So a batch can be generated and judged as soon as its weights exist,
while the loop trains on earlier batches, and the results and counts stay those of a sequential run.
The loop takes a batch's costs and the judges' state when it comes to the batch. A checkpoint
therefore has nothing in flight: a resumed run generates and judges those batches again, to the same
bits, from the rollout policy's weights in the checkpoint.
"""

from __future__ import annotations

import logging
import signal
import socket
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import ray
import torch
from transformers import PreTrainedTokenizerBase

from envs.problem import Judgement, Problem, Submission
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, OnFinished, Request
from experiments.engines.weight_sync import WeightSync
from experiments.errors import UserError
from experiments.policy.loading import pick_device
from experiments.policy.policy import Policy, SingleRank, WeightSource
from experiments.rollout.rollouts import BatchSource, Rollouts
from experiments.runtime import judges, ray_actors
from experiments.runtime.base import WorkerParts
from experiments.sample import Completion, PromptedProblem

START_ATTEMPTS = 4  # to start a cluster of this run's own: a busy machine takes long
CONNECT_S = 30  # to connect to a busy machine
POLL_S = 2  # how often a wait checks that the cluster is still there
MAX_DEATHS = 10  # of an actor in a run: more is not chance
CLOSE_S = 10  # for judges to close their sandboxes


class Cluster:
    """This process's membership in a Ray cluster: one from `ray start`, or one of its own."""

    def __init__(self, address: str | None, cpus: int = 0) -> None:
        """Join the cluster at `address`, or start one with `cpus` CPUs here. Raises UserError."""
        settings: dict[str, Any] = {"address": address}
        if address is None:
            system = {"worker_niceness": 0, "prestart_worker_first_driver": False}
            settings = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
            settings["_system_config"] = system
        host, _, port = (address or "").rpartition(":")
        with _signal_handlers_kept():
            try:
                if host and port.isdecimal():  # Ray itself would try for minutes
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
        # Ray's head, and its daemon on this node: without either the cluster is gone.
        self._needed = [(host, int(port)), (node["NodeManagerAddress"], node["NodeManagerPort"])]

    def take_all(self, references: Sequence[Any]) -> list[Any]:
        """Wait for results. Raises the error of an actor's call, or UserError."""
        return [self.take(reference) for reference in references]

    def take(self, reference: Any) -> Any:
        """Wait for a result. Raises the error of the actor's call.

        UserError if the cluster has ended, or if an actor keeps dying.
        """
        try:
            while not ray.wait([reference], timeout=POLL_S)[0]:
                if not self.alive():
                    raise self._ended("")
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            reason = (" ".join(str(error).strip().split("\n")[0].split()))[:300]
            if not self.alive():
                raise self._ended(f" ({reason})") from error
            raise UserError(
                f"runtime=ray: an actor died {MAX_DEATHS + 1} times: {reason}; see "
                "`ray logs` and the kernel's log"
            ) from error

    def _ended(self, cause: str) -> UserError:
        return UserError(
            f"runtime=ray: the Ray cluster has ended{cause}; start it again, and resume "
            "with resume=FOLDER"
        )

    def alive(self) -> bool:
        """Whether the cluster still answers. Ray's own answer may come a minute late."""
        try:
            for address in self._needed:
                socket.create_connection(address, timeout=CONNECT_S).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End the actors; a cluster of this run's own ends with them."""
        with _signal_handlers_kept():
            ray.shutdown()


class Ray(Cluster, SingleRank):
    """`runtime=ray`: the actors of a run, called by the one process that learns."""

    local_engines = False

    def __init__(self, config: RunConfig) -> None:
        """Start Ray here, or join the cluster at `runtime.address`. Raises UserError."""
        self.config = config
        super().__init__(config.runtime.address, config.runtime.judges)
        self.engine_actors: list[Any] = []
        self.judge_actors: list[Any] = []
        self._gpus = int(pick_device(config.model.device).type == "cuda")  # of each engine
        # Otherwise actors would wait for ever for a CPU or a GPU.
        available, runtime = ray.cluster_resources(), config.runtime
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
    def environments(self, config: RunConfig) -> Iterator[judges.Environments]:
        """Start all actors at once, and open the judges' sandboxes. Raises UserError."""
        # A call is repeated without limit: until Ray finds that a node is lost, each failed
        # connection to an actor there counts as a try.
        restarts = {"max_restarts": MAX_DEATHS, "max_task_retries": -1}
        engine = ray.remote(ray_actors.EngineActor).options(
            num_cpus=0, num_gpus=self._gpus, **restarts
        )
        judge = ray.remote(ray_actors.JudgeActor).options(
            num_cpus=1, scheduling_strategy="SPREAD", **restarts
        )
        # An actor has a GPU of its own, so there is nothing to colocate with.
        own = replace(config, engine=replace(config.engine, colocate=False))
        self.engine_actors = [engine.remote(own) for _ in range(config.runtime.engines)]
        self._opening = [actor.describe.remote() for actor in self.engine_actors]
        self.judge_actors = [judge.remote(config) for _ in range(config.runtime.judges)]
        numbers = count()

        def make() -> RayJudge:
            return RayJudge(self, self.judge_actors, next(numbers), first)

        try:
            described = [actor.describe.remote() for actor in self.judge_actors]
            first, *others = self.take_all(described)
            for other in others:
                if (first.name, first.version) != (other.name, other.version):
                    raise UserError(
                        f"runtime=ray: the nodes have different judges, {first.name} "
                        f"({first.version}) and {other.name} ({other.version}); use the same "
                        "Python on all nodes, and sandbox=docker or sandbox=embedded"
                    )
            yield judges.Environments(make, first.name, first.strength)
        finally:
            if self.alive():
                with suppress(ray.exceptions.RayError):
                    last = [actor.close.remote() for actor in self.judge_actors]
                    ray.wait(last, num_returns=len(last), timeout=CLOSE_S)
            self.engine_actors, self.judge_actors = [], []

    def engines(
        self, config: RunConfig, policy: Policy, tokenizer: PreTrainedTokenizerBase
    ) -> Callable[[Policy], Engine]:
        """Return a factory of engines for policies shaped like `policy`; all share the actors."""
        description = self.take_all(self._opening)[0]
        make = partial(RayEngine, self, self.engine_actors, WeightStore())
        return partial(make, config.engine.name, description)

    def prefetcher(
        self, weight_sync: WeightSync, rollouts: BatchSource, steps: int
    ) -> Callable[[int], None]:
        if isinstance(rollouts, Rollouts):
            return Prefetcher(weight_sync, rollouts, steps)
        return lambda step: None  # frozen batches exist already

    def proxies(self, parts: WorkerParts) -> WorkerParts:
        return parts


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Restore signal handlers. Ray replaces SIGTERM's with one that ends the process in 3 s."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


# Engine, judge and prefetching.

# Versions that the store itself keeps: the base, the rollout policy and the trained one. A call
# under way keeps its own, so up to train.lag + 1 more exist.
MAX_VERSIONS = 3
MAX_RESULTS = 64  # of a judge, behind the last state that was put into the object store


class WeightStore:
    """A run's weights in Ray's object store, each version put there once."""

    def __init__(self) -> None:
        self._refs: OrderedDict[int, Any] = OrderedDict()

    def put(self, weights: WeightSource) -> tuple[int, Any]:
        """Return the version of the weights and a reference to their tensors, as bytes."""
        version = weights.version
        if version not in self._refs:
            tensors = (value.cpu().contiguous().view(-1) for value in weights.plain_weights())
            self._refs[version] = ray.put([t.view(torch.uint8).numpy() for t in tensors])
        self._refs.move_to_end(version)
        while len(self._refs) > MAX_VERSIONS:
            self._refs.popitem(last=False)
        return version, self._refs[version]


@dataclass(eq=False)
class RayEngine(Engine):
    """An engine over n actors; actor i generates for prompts i, i+n, …."""

    cluster: Cluster
    actors: list[Any]
    store: WeightStore
    name: str
    of_actors: str  # the description of their engines
    policy: Policy  # holds the weights to generate with, in this process

    def __post_init__(self) -> None:
        self._prefetched: dict[tuple, list[Any]] = {}
        # For each actor, the requests whose keys and values it keeps.
        self._kept: list[list[Request]] = [[] for _ in self.actors]

    @property
    def description(self) -> str:
        return f"{self.of_actors}, in {len(self.actors)} of Ray's actors"

    def generate(self, request: Request, finished: OnFinished = None) -> list[list[Completion]]:
        calls = None if request.begun else self._prefetched.pop(_key(self.version, request), None)
        calls = calls or self._start(self.policy, request)
        size = len(calls)
        groups: list[list[Completion]] = [[] for _ in request.prompts]
        for first, call in enumerate(calls):
            groups[first::size] = self.cluster.take(call).groups
            if finished:
                prompts = range(first, len(groups), size)
                finished([(p, number, c) for p in prompts for number, c in enumerate(groups[p])])
        return groups

    def prefetch(self, weights: WeightSource, request: Request) -> list[Any]:
        """Start generating with these weights; a later `generate` takes the result."""
        calls = self._start(weights, request)
        self._prefetched[_key(weights.version, request)] = calls
        return calls

    def _start(self, weights: WeightSource, request: Request) -> list[Any]:
        size = min(len(self.actors), len(request.prompts))
        trained = next(self.policy.model.parameters()).requires_grad
        version, reference = self.store.put(weights)
        calls = []
        for index in range(size):
            own, kept = request.part(slice(index, None, size)), self._kept[index]
            arguments = (version, reference, trained, own, list(kept))
            calls.append(self.actors[index].generate.remote(*arguments))
            if kept or own.keep:
                kept.append(own)
        return calls

    def release_memory(self) -> None:
        """Have actors release what they keep, before their next call."""
        for actor, requests in zip(self.actors, self._kept, strict=True):
            if requests:
                requests.clear()
                actor.release_memory.remote()


def _key(version: int, request: Request) -> tuple:
    return version, tuple(map(tuple, request.prompts)), tuple(map(tuple, request.seeds))


@dataclass
class Judging:
    """What one judge has been asked with one environment, so that a new actor can go on from it."""

    actor: Any
    state: Any  # reference to the state before `results`
    calls: int = 0
    results: deque[Any] = field(default_factory=deque)  # references, in order


class RayJudge(judges.ShardedJudge):
    """Environment `number` of every judge actor."""

    def __init__(
        self, cluster: Cluster, actors: list[Any], number: int, first: ray_actors.JudgeDescription
    ) -> None:
        state = None if first.state is None else {p: dict(e) for p, e in first.state.items()}
        super().__init__(len(actors), first.version, state)
        self.cluster, self.number = cluster, number
        reference = ray.put(state)
        self._judges = [Judging(actor, reference) for actor in actors]
        self._taken: set[Any] = set()  # results whose knowledge is in `state`
        # Batches that are judged as soon as they are generated: engines' calls, the prompts of each
        # judge, numbered in the batch, and judges' calls.
        self._prefetched: deque[tuple[list[Any], list[list[tuple[int, Problem]]], list[Any]]]
        self._prefetched = deque()

    def prefetch(self, prompts: Sequence[PromptedProblem], generating: list[Any]) -> None:
        """Have a batch judged once it is generated, before anything that is submitted later."""
        own: list[list[tuple[int, Problem]]] = [[] for _ in self._judges]
        for number, prompt in enumerate(prompts):
            own[judges.shard_of(prompt.problem, self.size)].append((number, prompt.problem))
        judging = [
            self._call(judge, "judge_generated", part, *generating)
            for judge, part in zip(self._judges, own, strict=True)
        ]
        self._prefetched.append((generating, own, judging))

    def submit(self, submissions: Sequence[Submission]) -> Callable[[], list[Judgement]]:
        """Start judging; return a function that waits for the judgements.

        Unlike `judge`, this takes nothing that was prefetched.
        """
        calls = self._start(self.split(submissions))
        return lambda: self.join(submissions, self._results(calls))

    def _start(self, shards: list[list[Submission]]) -> list[Any]:
        """A judge without a shard is not called: it would answer after its prefetched batches."""
        return [
            self._call(judge, "judge", shard) if shard else None
            for judge, shard in zip(self._judges, shards, strict=True)
        ]

    def _call(self, judge: Judging, method: str, given: list[Any], *parts: Any) -> Any:
        """Call a judge behind its earlier calls.

        The last result is an argument too, so that calls repeated by Ray are made in order.
        """
        if len(judge.results) > MAX_RESULTS and judge.results[0] in self._taken:
            judge.state = ray.put(self.state)
            while judge.results and judge.results[0] in self._taken:
                self._taken.discard(judge.results.popleft())
        before = ray_actors.History(self.number, judge.calls, judge.state, tuple(judge.results))
        last = judge.results[-1] if judge.results else None
        result = getattr(judge.actor, method).remote(before, given, last, *parts)
        judge.calls += 1
        judge.results.append(result)
        return result

    def _results(self, calls: Iterable[Any]) -> Iterator[judges.ShardResult]:
        for call in calls:
            if call is None:
                yield judges.NO_RESULT
                continue
            yield self.cluster.take(call)
            self._taken.add(call)

    def judge_shards(self, shards: list[list[Submission]]) -> Iterator[judges.ShardResult]:
        if not self._prefetched:
            return self._results(self._start(shards))
        generating, prompts, judging = self._prefetched.popleft()
        generated = self.cluster.take_all(generating)
        for own, shard in zip(prompts, shards, strict=True):
            pairs = zip(ray_actors.submissions_of(own, generated), shard, strict=True)
            if any(one.response != other.response for one, other in pairs):
                raise RuntimeError("the responses to judge differ from the prefetched ones")
        return self._results(judging)

    def load_shards(self, state: judges.JudgeState) -> None:
        reference = ray.put(state)
        for judge in self._judges:
            judge.calls, judge.state = judge.calls + 1, reference
            judge.results.clear()
        self._taken.clear()


class Prefetcher:
    """Start each batch, in order, as soon as the weights that generate it exist.

    At most max(train.lag + 1, train.sync_every) batches are in flight, each with the weights that
    these keys give it. The judges get a batch's offline programs that many batches before it
    starts. Judges work in order, and how many responses are generated beside the offline programs
    is known once those are judged.
    """

    def __init__(self, weight_sync: WeightSync, rollouts: Rollouts, steps: int) -> None:
        self.weight_sync, self.rollouts, self.steps = weight_sync, rollouts, steps
        train = weight_sync.config
        self._max_in_flight = max(train.lag + 1, train.sync_every)
        self._last_started = self._last_foreseen = 0  # batches

    def __call__(self, step: int) -> None:
        """Start what can be started; batch `step` is the next to be collected."""
        for batch in range(max(step, self._last_started + 1), self.steps + 1):
            weights = self.weight_sync.weights_of(batch, step)
            if weights is None:
                return
            last = min(batch + self._max_in_flight, self.steps)
            for foreseen in range(max(step, self._last_foreseen + 1), last + 1):
                self.rollouts.prefetch(foreseen, step)
                self._last_foreseen = foreseen
            planned = self.rollouts.plan(batch, step)
            if planned is None:
                return
            prompts, seeds = planned
            if any(seeds):
                responder: Any = self.rollouts.responder  # its engine: under torchrun, a proxy
                tokens = [prompt.tokens for prompt in prompts]
                request = Request(tokens, seeds, self.rollouts.sampling)
                generating = responder.engine.prefetch(weights, request)
                responder.judge.prefetch(prompts, generating)
            self._last_started = batch
