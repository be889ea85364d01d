"""The ranks of one node under torchrun. Rank 0 runs the loop, the others run what it calls.

Only rank 0 has the run folder, the caches on disk, the evaluation's rows and the log, so nothing
can be decided differently elsewhere. The other ranks hold the same parts and wait: `call` names a
part and a method, which all ranks then run together. Rank 0's loop uses proxies, which make these
calls. Prompts go round the ranks in turn, and programs are sharded by problem.

`Torchrun` generates and judges on every rank. `TorchrunRay` (`runtime=ray` under torchrun) leaves
both to Ray actors that rank 0 calls. Its ranks share the learner only; they gather the weights
whenever the actors need new ones, whole on rank 0 in the host's memory.
"""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from transformers import PreTrainedTokenizerBase

from envs.problem import Environment, Problem, StatefulEnvironment, Submission
from experiments import errors
from experiments.config.preflight import resolve_defaults, set_ray_environment
from experiments.config.schema import RunConfig
from experiments.engines import open_engines
from experiments.engines.base import Engine, FinishedResponse, OnFinished, Request
from experiments.engines.weight_sync import WeightSync
from experiments.learner.batching import Tokens
from experiments.policy import loading
from experiments.policy.policy import (
    GatheringRoot,
    Item,
    Policy,
    WeightSource,
    frozen_copy,
    shard_units,
)
from experiments.rollout.rollouts import BatchSource
from experiments.run_dir.interrupts import defer_interrupts, ignore_interrupts
from experiments.runtime import judges
from experiments.runtime.base import LocalWorkers, WorkerParts, build_worker_parts
from experiments.sample import Completion, PromptedProblem, Sample, Turn

if TYPE_CHECKING:
    from experiments.runtime.ray import Ray


CALL, VALUE, STOP = "call", "value", "stop"  # kinds of message from rank 0
RANKS = "ranks"  # the target that is the process group itself
TIMEOUT = timedelta(days=1)  # rank 0 may be evaluating; torchrun notices deaths


class RunEnded(Exception):
    """Rank 0 has ended the run, wherever this rank was in it."""


class TorchrunRanks:
    """The process group of this run; `targets` are the parts that can be called by name."""

    sharded = True
    local_engines: bool
    start_error: str | None = None  # why this rank could not start

    def __init__(self) -> None:
        """Raises KeyError where the process was not started by torchrun."""
        on_gpu = torch.cuda.is_available()
        if on_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=TIMEOUT)
        # A critic's values are a view; nothing changes them in place.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.mesh = init_device_mesh("cuda" if on_gpu else "cpu", (self.size,))
        self.targets: dict[str, Any] = {RANKS: self}
        self.closing: list[Callable[[], None]] = []  # of parts with process groups of their own
        self.in_step = True  # whether the ranks still take calls
        # The other ranks are inside a call and wait for a value of rank 0.
        self._others_wait = False

    @property
    def is_rank_zero(self) -> bool:
        return self.rank == 0

    def start_workers(self, config: RunConfig) -> None:
        """Start other processes, on rank 0, before anything else. Raises UserError."""

    def start_errors(self) -> list[str | None]:
        """On every rank: gather why ranks could not start."""
        return self.gather(self.start_error)

    def raise_start_errors(self) -> None:
        """On rank 0: raise UserError if another rank could not start."""
        for rank, error in enumerate(self.call(RANKS, "start_errors")):
            if error is not None:
                raise errors.UserError(f"rank {rank}: {error}")

    def shard(self, policy: Policy, critic: nn.Module | None = None) -> None:
        if policy.sharded:
            return
        layers = list(getattr(policy.model.base_model, "layers", ()))
        if critic is None:
            policy.root = GatheringRoot(policy.model)
            shard_units([*layers, policy.root], self.mesh)
        else:  # a head is a unit of its own, because a unit has one precision
            heads = [part for part in critic.children() if part is not policy.model]
            shard_units([*layers, *heads, critic], self.mesh)
        policy.sharded = True

    def shard_head(self, head: nn.Module) -> None:
        shard_units([head], self.mesh)

    def engine_copy(self, policy: Policy) -> Policy:
        return frozen_copy(policy)

    def share(self, items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
        items = list(items)
        for first in range(0, len(items), self.size):
            index = first + self.rank
            yield (items[index], True) if index < len(items) else (items[0], False)

    def sum(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor)
        return tensor

    def broadcast(self, value: Callable[[], Tensor]) -> Tensor:
        """Rank 0's `value` may call the other ranks: until it returns they run its calls."""
        if not self.is_rank_zero:
            return self._run_calls().to(self.mesh.device_type)
        self._others_wait = True
        tensor = value()
        self._send((VALUE, tensor.cpu()))
        self._others_wait = False
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value on rank 0, and an empty list elsewhere."""
        values = [None] * self.size if self.is_rank_zero else None
        dist.gather_object(value, values)
        return values or []

    def call(
        self, target: str, method: str, *args: Any, own_args: tuple[Any, ...] | None = None
    ) -> Any:
        """Run targets[target].method(*args) on all ranks; return what rank 0's returns.

        `own_args` replace the arguments on rank 0. An interrupt waits until all ranks have ended
        the call. An error on rank 0 alone, or a second interrupt, leaves the ranks out of step, and
        later calls raise RuntimeError. Ranks that wait for a value stay in step.
        """
        if not self.in_step:
            raise RuntimeError("the ranks are out of step after an error")
        others_waited, self._others_wait = self._others_wait, False
        with defer_interrupts():
            try:
                self._send((CALL, target, method, args))
                own = args if own_args is None else own_args
                return getattr(self.targets[target], method)(*own)
            except errors.UserError:
                raise  # raised on all ranks alike, or while they wait
            except BaseException:
                if not self._others_wait:
                    self.in_step = False
                    ignore_interrupts()  # torchrun's signal would cut off the run's last records
                raise
            finally:
                self._others_wait = others_waited

    def serve(self) -> None:
        """On other ranks: run rank 0's calls until it ends the run."""
        with suppress(RunEnded):
            self._run_calls()

    def _run_calls(self) -> Any:
        """Run rank 0's calls until it sends a value; return the value. Raises RunEnded."""
        while True:
            message: list[Any] = [None]
            dist.broadcast_object_list(message, src=0)
            kind, *rest = message[0]
            if kind == STOP:
                raise RunEnded
            if kind == VALUE:
                return rest[0]
            target, method, args = rest
            with suppress(errors.UserError):  # rank 0 has it too, and reports it
                getattr(self.targets[target], method)(*args)

    def proxies(self, parts: WorkerParts) -> WorkerParts:
        """Make this rank's parts callable; return proxies for all ranks' parts."""
        kind = ShardedEngine if self.local_engines else SyncedEngine
        shared: dict[str, Any] = {
            name: kind(self, name, engine, parts.learner.policy)
            for name in ("engine", "eval_engine", "reference_engine")
            if (engine := getattr(parts, name)) is not None
        }
        shared["learner"] = TorchrunLearner(self, "learner", parts.learner)
        shared["weight_sync"] = TorchrunWeightSync(self, "weight_sync", parts.weight_sync)
        if self.local_engines and parts.environments is not None:
            shards, numbers = RankJudges(self, parts.environments.make), count()

            def make() -> Environment:
                number = next(numbers)
                return TorchrunJudge(self, number, shards.environment(number))

            shared["environments"] = replace(parts.environments, make=make)
        if self.is_rank_zero:
            self.raise_start_errors()
        return replace(parts, **shared)

    def stop(self) -> None:
        """End the run on all ranks. If one has died, the outcome is already recorded."""
        with suppress(RuntimeError, ValueError):  # ValueError: the group has ended
            if self.in_step:
                self._send((STOP,))
        self.leave()

    def leave(self) -> None:
        """Leave the process group."""
        for close in self.closing:
            with suppress(Exception):  # the outcome is already recorded
                close()
        with suppress(RuntimeError):
            if dist.is_initialized():
                dist.destroy_process_group()

    def _send(self, message: tuple[Any, ...]) -> None:
        dist.broadcast_object_list([message], src=0)


class Torchrun(TorchrunRanks, LocalWorkers):
    """`runtime=torchrun`: every rank learns, generates and judges."""

    def engines(
        self, config: RunConfig, policy: Policy, tokenizer: PreTrainedTokenizerBase
    ) -> Callable[[Policy], Engine]:
        """Raises UserError, and RunEnded on a rank when rank 0 could not start.

        vLLM's start is a collective: ranks that enter it would wait for one that could not start.
        So all ranks meet before it.
        """
        if config.engine.name == "vllm":
            if self.is_rank_zero:
                self.raise_start_errors()
                self._send((VALUE, None))
            else:
                self._run_calls()
        return open_engines(config, policy, tokenizer, self.closing)


class TorchrunRay(TorchrunRanks):
    """`runtime=ray` under torchrun: ranks share the learner, Ray actors generate and judge."""

    local_engines = False
    cluster: Ray  # on rank 0, once started

    def start_workers(self, config: RunConfig) -> None:
        for name in [name for name in os.environ if name.startswith("TORCHELASTIC_")]:
            del os.environ[name]  # or torch takes an actor for one of torchrun's processes
        set_ray_environment(config.runtime.address)  # which Ray reads as it is imported
        from experiments.runtime.ray import Ray

        self.cluster = Ray(config)

    def environments(self, config: RunConfig) -> AbstractContextManager[judges.Environments]:
        return self.cluster.environments(config)

    def engines(
        self, config: RunConfig, policy: Policy, tokenizer: PreTrainedTokenizerBase
    ) -> Callable[[Policy], Engine]:
        if self.is_rank_zero:
            return self.cluster.engines(config, policy, tokenizer)
        return NullEngine

    def prefetcher(
        self, weight_sync: WeightSync, rollouts: BatchSource, steps: int
    ) -> Callable[[int], None]:
        return self.cluster.prefetcher(weight_sync, rollouts, steps)

    def engine_copy(self, policy: Policy) -> Policy:
        """Nothing computes with the copy here; other ranks keep only its shapes."""
        return frozen_copy(policy, "cpu" if self.is_rank_zero else "meta")

    def stop(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.stop()
        super().stop()


def work(config: RunConfig, ranks: Torchrun | TorchrunRay) -> None:
    """On other ranks: build the parts, and run rank 0's calls of them.

    A rank that cannot start keeps its error for rank 0, which asks every rank and reports.
    """
    with ExitStack() as stack, suppress(RunEnded):
        try:
            loading.set_up_torch(config.model.threads)
            torch.manual_seed(config.seed)
            config = resolve_defaults(config, str(loading.pick_device(config.model.device)))
            base, tokenizer = loading.load(config.model)
            opened = judges.open_environments(config) if ranks.local_engines else nullcontext()
            build_worker_parts(config, base, tokenizer, stack.enter_context(opened), ranks)
        except RunEnded:
            raise
        except Exception as error:
            if not errors.is_expected(error):
                traceback.print_exc()
            ranks.start_error = errors.one_line(error)
        ranks.serve()
    ranks.leave()


class NullEngine(Engine):
    """On a rank without an engine: takes part in gathering weights, and keeps none."""

    name = "none"

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def generate(self, request: Request, finished: OnFinished = None) -> list[list[Completion]]:
        raise RuntimeError("this rank does not generate")


# Proxies.


def attempts(ranks: TorchrunRanks, work: Callable[[], Any]) -> list[Any]:
    """Gather every rank's result, or its error: if it raised alone, the other ranks would wait."""
    try:
        found = work()
    except Exception as error:
        found = error
    return ranks.gather(found)


def results_of(attempts: list[Any]) -> list[Any]:
    """Return every rank's result. Raises the first rank's error."""
    for value in attempts:
        if isinstance(value, Exception):
            raise value
    return attempts


class Proxy:
    """On rank 0: a part that every rank has. Calls of `methods` go to all ranks."""

    methods: tuple[str, ...] = ()

    def __init__(self, ranks: TorchrunRanks, key: str, part: Any) -> None:
        self._ranks, self._key, self._part = ranks, key, part
        ranks.targets.setdefault(key, part)

    def __getattr__(self, name: str) -> Any:
        if name not in self.methods:
            return getattr(self._part, name)
        return lambda *args: self._ranks.call(self._key, name, *args)


class SyncedEngine(Proxy):
    """Rank 0's engine; for its sync, all ranks have to give their shards of the weights."""

    def __init__(self, ranks: TorchrunRanks, key: str, engine: Engine, trained: Policy) -> None:
        super().__init__(ranks, key, engine)
        self._trained = trained
        ranks.targets[key] = self

    @property
    def description(self) -> str:
        return f"{self._part.description}; the learner on {self._ranks.size} ranks"

    def sync(self, weights: WeightSource) -> None:
        self._ranks.call(self._key, "take_trained")

    def take_trained(self) -> None:
        """On every rank: sync with the trained weights, gathered whole."""
        self._part.sync(self._trained)


class ShardedEngine(SyncedEngine):
    """Every rank's engine: of n ranks, rank i generates for prompts i, i+n, …."""

    @property
    def description(self) -> str:
        return f"{self._part.description}, on {self._ranks.size} ranks"

    def generate(self, request: Request, finished: OnFinished = None) -> list[list[Completion]]:
        seeds = [list(group) for group in request.seeds]
        request = replace(request, prompts=list(request.prompts), seeds=seeds)
        own_args = (request, finished)
        gathered = self._ranks.call(self._key, "generate_shard", request, own_args=own_args)
        groups, size = results_of(gathered), self._ranks.size
        return [groups[i % size][i // size] for i in range(len(request.prompts))]

    def generate_shard(self, request: Request, finished: OnFinished = None) -> list[Any]:
        """On every rank: generate for its prompts."""
        rank, size = self._ranks.rank, self._ranks.size
        own = request.part(slice(rank, None, size))

        def numbered_in_batch(responses: Sequence[FinishedResponse]) -> None:
            assert finished is not None
            finished([(rank + prompt * size, number, c) for prompt, number, c in responses])

        if not own.prompts:
            return attempts(self._ranks, lambda: self._part.release_memory() or [])
        callback = numbered_in_batch if finished else None
        return attempts(self._ranks, lambda: self._part.generate(own, callback))

    def release_memory(self) -> None:
        """Release it on every rank; after an error that left them out of step, on this one."""
        if self._ranks.in_step:
            self._ranks.call(self._key, "release_shard")
        else:
            self.release_shard()

    def release_shard(self) -> None:
        """Release this rank's."""
        self._part.release_memory()


class RankJudges(judges.JudgeShard):
    """On every rank: its shard of each environment that rank 0 makes."""

    def __init__(self, ranks: TorchrunRanks, make: Callable[[], Environment]) -> None:
        super().__init__(make)
        self.ranks = ranks
        ranks.targets["judges"] = self

    def judge_shard(self, number: int, shards: list[list[Submission]] | None = None) -> list[Any]:
        """Judge this rank's shard of the submissions that rank 0 scatters."""
        own: list[Any] = [None]
        dist.scatter_object_list(own, shards, src=0)
        return attempts(self.ranks, lambda: self.judge(number, own[0]))


class TorchrunJudge(judges.ShardedJudge):
    """The environment on rank 0, which distributes judging over all ranks."""

    def __init__(self, ranks: TorchrunRanks, number: int, own: Environment) -> None:
        self.ranks, self.number = ranks, number
        state = own.state_dict() if isinstance(own, StatefulEnvironment) else None
        super().__init__(ranks.size, own.version, state)

    def judge_shards(self, shards: list[list[Submission]]) -> list[judges.ShardResult]:
        own_args = (self.number, shards)
        return results_of(self.ranks.call("judges", "judge_shard", self.number, own_args=own_args))

    def load_shards(self, state: judges.JudgeState) -> None:
        self.ranks.call("judges", "load_state", self.number, state)


class TorchrunWeightSync(Proxy):
    """Weights go from every rank's learner to its engine."""

    methods: tuple[str, ...] = ("follow", "load_from")

    def state_dict(self) -> dict[str, Any]:
        """Return the state, which is gathered only on rank 0."""
        return self._ranks.call(self._key, "state_dict", False, own_args=(True,))


class TorchrunLearner(TorchrunWeightSync):
    """Every rank has a shard of the modules, and its part of each batch."""

    methods = ("load_from",)

    def logp(self, tokens: Tokens) -> Tensor:
        return self._score("logp", tokens)

    def ref_logp(self, tokens: Tokens) -> Tensor:
        return self._score("ref_logp", tokens)

    def _score(self, method: str, tokens: Tokens) -> Tensor:
        """Tokens are sent from the CPU: a tensor of one GPU would stay that GPU's elsewhere."""
        return self._ranks.call(self._key, method, tokens.to("cpu"), own_args=(tokens,))

    def update(
        self, samples: Sequence[Sample], group_size: int, initial_values: Any
    ) -> dict[str, float]:
        args = ([_trimmed(sample) for sample in samples], group_size, None)
        own_args = (samples, group_size, initial_values)
        return self._ranks.call(self._key, "update", *args, own_args=own_args)


def _trimmed(sample: Sample) -> Sample:
    """A sample with no more than the learner reads: the verdict, but no tests and no program."""
    name = sample.prompt.problem.name
    prompt = PromptedProblem(Problem(name, "", (), ()), sample.prompt.tokens)
    judgement = replace(sample.judgement, program="", detail="")
    turns = tuple(Turn(turn.answer, turn.observation) for turn in sample.turns)
    return replace(sample, prompt=prompt, judgement=judgement, turns=turns)
