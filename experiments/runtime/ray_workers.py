"""The work of Ray actors: plain classes, which know nothing of Ray.

A judge actor's process imports no torch: engines send it their responses as text.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from envs.environment import StatefulEnvironment, Submission
from envs.problem import Problem
from experiments.rollout.environments import open_environments
from experiments.runtime.sharded_judge import JudgeShard, JudgeState, ShardResult

if TYPE_CHECKING:
    import numpy as np

    from experiments.config.schema import RunConfig
    from experiments.engines.base import Request
    from experiments.sample import Completion


class Generated(NamedTuple):
    """One engine's part of a batch: a group of responses for each of its prompts."""

    groups: list[list[Completion]]
    texts: list[list[str]]
    busy_s: float


class EngineActor:
    """An engine that generates with the weights given in each call."""

    def open(self, config: RunConfig) -> str:
        """Load model and engine; return the engine's description. Raises UserError."""
        from experiments.engines.factory import open_engines
        from experiments.policy import loading

        loading.set_up_torch(config.model.threads)
        policy, self._tokenizer = loading.load(config.model)
        self._engine = open_engines(config, policy, self._tokenizer)(policy)
        self._version: int | None = None  # of the weights that the engine holds
        self._kept = 0  # calls since the engine kept nothing
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

        `earlier`: calls with the same weights whose keys and values the engine keeps. An actor that
        has not made them, since it replaces another, makes them first: they give the same bits.

        `trained`: whether they require a gradient in the loop's process. Torch's kernels round
        differently then, even where none is taken, and both processes must give the same bits.
        """
        begin = time.monotonic()
        self._engine.policy.model.requires_grad_(trained)
        if version != self._version:
            self._load(version, weights)
        for call in earlier[self._kept :]:
            self._engine.generate(call)
        groups = self._engine.generate(request)
        self._kept = len(earlier) + 1 if earlier or request.keep else 0
        texts = [self._texts(group) for group in groups]
        return Generated(groups, texts, time.monotonic() - begin)

    def release_memory(self) -> None:
        """Release what the engine keeps between calls."""
        self._engine.release_memory()
        self._kept = 0

    def _load(self, version: int, weights: Sequence[np.ndarray]) -> None:
        import torch

        from experiments.policy.weight_snapshots import PlainWeights

        parameters = list(self._engine.policy.model.parameters())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the object store's memory is read-only
            tensors = [
                torch.from_numpy(value).view(parameter.dtype).view(parameter.shape)
                for parameter, value in zip(parameters, weights, strict=True)
            ]
        self._version = None  # weights that are half loaded have no version
        self._engine.sync(PlainWeights(tensors, version))
        self._version = version

    def _texts(self, group: Sequence[Completion]) -> list[str]:
        tokens = [list(completion.tokens) for completion in group]
        return self._tokenizer.batch_decode(tokens, skip_special_tokens=True) if tokens else []


class JudgeDescription(NamedTuple):
    """An actor's sandbox and environments."""

    name: str  # of the sandbox
    strength: str
    version: str
    state: JudgeState | None  # of a new environment; None where environments never learn


class JudgeActor:
    """A judge with a sandbox of its own."""

    _description: JudgeDescription | None = None

    def open(self, environment: str | None, sandbox: Any, judge: Any) -> JudgeDescription:
        """Open the sandbox, once, and describe it. Raises UserError."""
        if self._description is not None:
            return self._description
        config: Any = SimpleNamespace(
            task=SimpleNamespace(environment=environment), sandbox=sandbox, judge=judge
        )
        self._stack = ExitStack()
        environments = self._stack.enter_context(open_environments(config))
        self._shard = JudgeShard(environments.make)
        self._require(0)
        first = self._shard.environments[0]
        self._description = JudgeDescription(
            name=environments.name,
            strength=environments.strength,
            version=first.version,
            state=first.state_dict() if isinstance(first, StatefulEnvironment) else None,
        )
        return self._description

    def load_state(self, number: int, state: JudgeState) -> None:
        """Replace the state of environment `number`."""
        self._require(number)
        self._shard.load_state(number, state)

    def judge(self, number: int, submissions: list[Submission]) -> tuple[ShardResult, float]:
        """Judge with environment `number`; return the result and the seconds taken."""
        begin = time.monotonic()
        self._require(number)
        return self._shard.judge(number, submissions), time.monotonic() - begin

    def judge_generated(
        self, number: int, prompts: list[tuple[int, Problem]], *parts: Generated
    ) -> tuple[ShardResult, float]:
        """Judge the responses to some numbered prompts of a batch; `parts` are all engines'."""
        return self.judge(number, submissions_of(prompts, parts))

    def close(self) -> None:
        """Return to the state before `open`."""
        if self._description is not None:
            self._description = None
            self._stack.close()

    def _require(self, number: int) -> None:
        while len(self._shard.environments) <= number:
            self._shard.add()


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
