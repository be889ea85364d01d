"""Parts of a run that all ranks work on: proxies on rank 0 for the parts of all ranks.

Prompts go round the ranks in turn. Programs are sharded by problem, so every rank's cache stays
valid and the counters equal those of one judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch.distributed as dist
from torch import Tensor

from envs.environment import Environment, StatefulEnvironment, Submission
from envs.problem import Problem
from experiments.engines.base import Engine, FinishedResponse, OnFinished, Request
from experiments.learner.batching import Tokens
from experiments.policy.policy import Policy, WeightSource
from experiments.runtime.sharded_judge import JudgeShard, JudgeState, ShardedJudge, ShardResult
from experiments.runtime.torchrun import TorchrunRanks
from experiments.sample import Completion, PromptedProblem, Sample, Turn


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


class RankJudges(JudgeShard):
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


class TorchrunJudge(ShardedJudge):
    """The environment on rank 0, which distributes judging over all ranks."""

    def __init__(self, ranks: TorchrunRanks, number: int, own: Environment) -> None:
        self.ranks, self.number = ranks, number
        state = own.state_dict() if isinstance(own, StatefulEnvironment) else None
        super().__init__(ranks.size, own.version, state)

    def judge_shards(self, shards: list[list[Submission]]) -> list[ShardResult]:
        own_args = (self.number, shards)
        return results_of(self.ranks.call("judges", "judge_shard", self.number, own_args=own_args))

    def load_shards(self, state: JudgeState) -> None:
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
