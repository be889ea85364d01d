"""The parts of a run whose work all ranks do: on the main rank they stand for all of them.

Prompts go round the ranks in turn; a program goes to the rank that its problem belongs to, so that
each judge knows what was said of its problems before, and the counters are those of one judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from envs.environment import Environment, StatefulEnvironment, Submission
from envs.problem import Problem
from experiments.distributed.sharded_judge import Bench, Judged, Known, SplitJudge
from experiments.distributed.torchrun import Torchrun
from experiments.engines.base import Completion, Engine, FinishedResponse, Sampling
from experiments.sample import PromptedProblem, Sample

if TYPE_CHECKING:
    from torch import Tensor

    from experiments.distributed.worker_parts import WorkerParts
    from experiments.learner.forward import Tokens

Found = tuple[Any, Exception | None]


def guarded(work: Callable[[], Any]) -> Found:
    """A rank that fails alone says so, instead of leaving the others waiting."""
    try:
        return work(), None
    except Exception as error:
        return None, error


def collected(found: list[Found]) -> list[Any]:
    """Every rank's result. Raises the first rank's error."""
    for _, error in found:
        if error is not None:
            raise error
    return [value for value, _ in found]


class Announced:
    """On the main rank: a part of which every rank has its own; `methods` go to all."""

    methods: tuple[str, ...] = ()

    def __init__(self, ranks: Torchrun, key: str, part: Any) -> None:
        self._ranks, self._key, self._part = ranks, key, part

    def __getattr__(self, name: str) -> Any:
        if name not in self.methods:
            return getattr(self._part, name)
        return lambda *given: self._ranks.call(self._key, name, *given)


class SyncedEngine(Announced):
    """An engine that takes the trained weights, for which all ranks have to give their shards."""

    def __init__(self, ranks: Torchrun, key: str, engine: Engine, trained: Any) -> None:
        super().__init__(ranks, key, engine)
        self._trained = trained
        ranks.targets[key] = self

    @property
    def described(self) -> str:
        return f"{self._part.described}; the learner on {self._ranks.size} ranks"

    def sync(self, model: Any) -> None:
        self._ranks.call(self._key, "take")

    def take(self) -> None:
        """On every rank: the trained weights, whole."""
        self._part.sync(self._trained)


class ShardedEngine(SyncedEngine):
    """Each rank's engine writes every so-many-th prompt."""

    @property
    def described(self) -> str:
        return f"{self._part.described}, on {self._ranks.size} ranks"

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        finished: Callable[[Sequence[FinishedResponse]], None] | None = None,
    ) -> list[list[Completion]]:
        given = (list(prompts), [list(of) for of in seeds], sampling)
        found = collected(self._ranks.call(self._key, "write", *given, mine=(*given, finished)))
        size = self._ranks.size
        return [found[i % size][i // size] for i in range(len(prompts))]

    def write(
        self,
        prompts: list[Sequence[int]],
        seeds: list[list[int]],
        sampling: Sampling,
        finished: Callable[[Sequence[FinishedResponse]], None] | None = None,
    ) -> list[Found]:
        """On every rank: its prompts."""
        mine = slice(self._ranks.rank, None, self._ranks.size)
        rank, size = self._ranks.rank, self._ranks.size

        def hand_out(written: Sequence[FinishedResponse]) -> None:
            finished([(rank + prompt * size, number, c) for prompt, number, c in written])

        work = (prompts[mine], seeds[mine], sampling, hand_out if finished else None)
        if not work[0]:
            return self._ranks.gather(guarded(lambda: self._part.rest() or []))
        return self._ranks.gather(guarded(lambda: self._part.generate(*work)))


class Judges(Bench):
    """On every rank: the environments that the main rank asked for, by number."""

    def __init__(self, ranks: Torchrun, make: Callable[[], Environment]) -> None:
        super().__init__(make)
        self.ranks = ranks
        ranks.targets["judges"] = self

    def work(self, number: int, parts: list[list[Submission]] | None = None) -> list[Found]:
        """Judge this rank's part of what the main rank hands out."""
        import torch.distributed as dist

        own: list[Any] = [None]
        dist.scatter_object_list(own, parts, src=0)
        return self.ranks.gather(guarded(lambda: self.judged(number, own[0])))


class TorchrunJudge(SplitJudge):
    """On the main rank: one environment whose work all ranks do."""

    def __init__(self, ranks: Torchrun, judges: Judges) -> None:
        ranks.call("judges", "add")
        self.ranks, self.number = ranks, len(judges.made) - 1
        inner = judges.made[-1]
        known = inner.state_dict() if isinstance(inner, StatefulEnvironment) else None
        super().__init__(ranks.size, inner.version, known)

    def work(self, parts: list[list[Submission]]) -> list[Judged]:
        return collected(self.ranks.call("judges", "work", self.number, mine=(self.number, parts)))

    def tell(self, state: Known) -> None:
        self.ranks.call("judges", "know", self.number, state)


class Remembered(Announced):
    """A part whose state is whole on the main rank alone, and read by each for itself."""

    methods = ("load_from",)

    def state_dict(self) -> dict[str, Any]:
        return self._ranks.call(self._key, "state_dict", False, mine=(True,))


class TorchrunWeightSync(Remembered):
    """Weights go from every rank's learner to its engine."""

    methods = ("follow", "load_from")


class TorchrunLearner(Remembered):
    """Every rank has a shard, and its part of each batch."""

    def logp(self, tokens: Tokens) -> Tensor:
        return self._score("logp", tokens)

    def ref_logp(self, tokens: Tokens) -> Tensor:
        return self._score("ref_logp", tokens)

    def _score(self, method: str, tokens: Tokens) -> Tensor:
        """A tensor of one GPU would come to the others as one of that GPU."""
        return self._ranks.call(self._key, method, tokens.to("cpu"), mine=(tokens,))

    def update(self, samples: Sequence[Sample], group_size: int, initial_values: Any) -> dict:
        light = ([_light(sample) for sample in samples], group_size, None)
        whole = (samples, group_size, initial_values)
        return self._ranks.call(self._key, "update", *light, mine=whole)


def spread(ranks: Torchrun, work: WorkerParts) -> WorkerParts:
    """Register this rank's parts; on the main rank → parts that stand for all ranks'."""
    ranks.targets |= {"learner": work.learner, "writer": work.writer}
    model, kind = work.learner.model, ShardedEngine if ranks.writes else SyncedEngine
    engines = {
        name: kind(ranks, name, engine, model)
        for name in ("engine", "eval_engine", "reference_engine")
        if (engine := getattr(work, name)) is not None
    }
    made = work.environments
    if ranks.writes:
        judges = Judges(ranks, made.make)
        made = replace(made, make=lambda: TorchrunJudge(ranks, judges))
    return replace(
        work,
        learner=TorchrunLearner(ranks, "learner", work.learner),
        writer=TorchrunWeightSync(ranks, "writer", work.writer),
        environments=made,
        **engines,
    )


def _light(sample: Sample) -> Sample:
    """What a learner reads of a sample: no tests, no program."""
    name = sample.prompt.problem.name
    prompt = PromptedProblem(Problem(name, "", (), ()), sample.prompt.tokens)
    return replace(sample, prompt=prompt, judgement=None)
