"""The work of Ray's actors: plain classes that know little of Ray.

Ray starts an actor that dies again and repeats its unfinished calls (`ray.py`). So a call names all
that its result depends on, and a new actor gives the same result to the bit. A judge's process
imports no torch: engines send it their responses as text.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import ray

from envs.problem import Problem, StatefulEnvironment, Submission
from experiments.runtime.judges import JudgeShard, JudgeState, ShardResult, merge, open_environments
from experiments.sample import Completion

if TYPE_CHECKING:
    import numpy as np

    from experiments.config.schema import RunConfig
    from experiments.engines.base import Engine, Request


class Generated(NamedTuple):
    """One engine's part of a batch: a group of responses for each of its prompts."""

    groups: list[list[Completion]]
    texts: list[list[str]]


class EngineActor:
    """An engine that generates with the weights given in each call."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._version: int | None = None  # of the weights that the engine holds
        self._kept = 0  # requests whose keys and values it holds

    @cached_property
    def _engine(self) -> Engine:
        from experiments.engines import open_engines
        from experiments.policy import loading

        loading.set_up_torch(self._config.model.threads)
        policy, self._tokenizer = loading.load(self._config.model)
        return open_engines(self._config, policy, self._tokenizer)(policy)

    def describe(self) -> str:
        """Load model and engine; return the engine's description. Raises UserError."""
        return self._engine.description

    def generate(
        self,
        version: int,
        weights: Sequence[np.ndarray],
        trained: bool,
        request: Request,
        earlier: Sequence[Request],
    ) -> Generated:
        """Generate with the weights of `version`, as bytes.

        `earlier`: requests with the same weights whose keys and values the engine keeps. An actor
        that has not met them repeats them first.

        `trained`: whether the weights require a gradient in the loop's process. Torch's kernels
        round differently then, even where none is taken.
        """
        self._engine.policy.model.requires_grad_(trained)
        if version != self._version:
            self._load(version, weights)
        for kept in earlier[self._kept :]:
            self._engine.generate(kept)
        groups = self._engine.generate(request)
        self._kept = len(earlier) + 1 if earlier or request.keep else 0
        rows = [[list(one.tokens) for one in group] for group in groups]
        decode = partial(self._tokenizer.batch_decode, skip_special_tokens=True)
        return Generated(groups, [decode(group) if group else [] for group in rows])

    def release_memory(self) -> None:
        """Release what the engine keeps between calls."""
        self._engine.release_memory()
        self._kept = 0

    def _load(self, version: int, weights: Sequence[np.ndarray]) -> None:
        import torch

        from experiments.policy.snapshots import PlainWeights

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the object store's memory is read-only
            tensors = [
                torch.from_numpy(value).view(parameter.dtype).view(parameter.shape)
                for parameter, value in zip(
                    self._engine.policy.model.parameters(), weights, strict=True
                )
            ]
        self._version = None  # weights that are half loaded have no version
        self._engine.sync(PlainWeights(tensors, version))
        self._version = version


@dataclass(frozen=True)
class History:
    """The state in which an environment judges: `state`, and what later results have learnt.

    Both are references, which only an actor that has not seen `calls` calls of it reads.
    """

    number: int  # of the environment
    calls: int
    state: Any
    results: Sequence[Any]


class JudgeDescription(NamedTuple):
    """An actor's sandbox and environments."""

    name: str  # of the sandbox
    strength: str
    version: str
    state: JudgeState | None  # of a new environment; None where environments never learn


class JudgeActor:
    """A judge with a sandbox of its own."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._stack = ExitStack()
        self._calls: dict[int, int] = {}  # of each environment

    @cached_property
    def _shard(self) -> JudgeShard:
        self._environments = self._stack.enter_context(open_environments(self._config))
        return JudgeShard(self._environments.make)

    def describe(self) -> JudgeDescription:
        """Open the sandbox and describe it. Raises UserError."""
        first, opened = self._shard.environment(0), self._environments
        state = first.state_dict() if isinstance(first, StatefulEnvironment) else None
        return JudgeDescription(opened.name, opened.strength, first.version, state)

    def judge(self, before: History, submissions: list[Submission], _: Any = None) -> ShardResult:
        """Judge after what `before` names; the last argument is waited for alone."""
        self._restore(before)
        result = self._shard.judge(before.number, submissions)
        self._calls[before.number] = before.calls + 1
        return result

    def judge_generated(
        self, before: History, prompts: list[tuple[int, Problem]], _: Any, *parts: Generated
    ) -> ShardResult:
        """Judge the responses to some numbered prompts of a batch; `parts` are all engines'."""
        return self.judge(before, submissions_of(prompts, parts))

    def close(self) -> None:
        """Close the sandbox."""
        self._stack.close()

    def _restore(self, before: History) -> None:
        """Bring the environment to that state, unless it is there."""
        if self._calls.get(before.number, 0) == before.calls:
            return
        state: JudgeState = dict(ray.get(before.state) or {})
        for result in ray.get(list(before.results)):
            merge(state, result.learnt)
        self._shard.load_state(before.number, state)


def submissions_of(
    prompts: Sequence[tuple[int, Problem]], parts: Sequence[Generated]
) -> list[Submission]:
    """Return the responses to some numbered prompts. Engine i of n generated prompts i, i+n, …."""
    size = len(parts)
    return [
        Submission(problem, text)
        for number, problem in prompts
        for text in parts[number % size].texts[number // size]
    ]
