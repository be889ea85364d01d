"""What Ray's actors do: plain classes, which know nothing of Ray.

A judge's process reads no torch; what an engine writes goes to it as text.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from envs.environment import IncrementalEnvironment, StatefulEnvironment, Submission
from envs.problem import Problem
from experiments.distributed.sharded_judge import Bench, Judged, Known
from experiments.rollout.environments import open_environments

if TYPE_CHECKING:
    import numpy as np

    from experiments.config.schema import RunConfig
    from experiments.engines.base import Completion, Sampling


class Part(NamedTuple):
    """What an engine gives for its part of a batch: a group for each prompt."""

    groups: list[list[Completion]]
    texts: list[list[str]]
    busy_s: float


class EngineActor:
    """Writes with the weights that each call names."""

    def open(self, config: RunConfig) -> str:
        """Load model and engine → what the engine is called. Raises UserError."""
        import torch

        from experiments.engines.factory import open_engines
        from experiments.policy import loading

        torch.set_num_threads(config.model.threads)
        model, self._tokenizer = loading.load(config.model)
        self._engine = open_engines(config, model, self._tokenizer)(model)
        self._holds: int | None = None  # the version of the weights
        return self._engine.described

    def write(
        self,
        version: int,
        weights: Sequence[np.ndarray],
        trained: bool,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
    ) -> Part:
        """len(seeds[i]) responses to prompts[i]; `weights`: those of `version`, as bytes.

        `trained`: whether they require a gradient on the loop's side. Torch's kernels round
        differently then, even where none is taken, and here it is to be as it is there.
        """
        begin = time.monotonic()
        self._engine.model.requires_grad_(trained)
        if version != self._holds:
            self._take(version, weights)
        groups = self._engine.generate(prompts, seeds, sampling)
        texts = [self._texts(group) for group in groups]
        return Part(groups, texts, time.monotonic() - begin)

    def _take(self, version: int, weights: Sequence[np.ndarray]) -> None:
        import torch

        from experiments.policy.weights import as_module

        own = list(self._engine.model.parameters())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the object store's memory cannot be written to
            given = [
                torch.from_numpy(value).view(mine.dtype).view(mine.shape)
                for mine, value in zip(own, weights, strict=True)
            ]
        self._holds = None  # half-loaded weights are nobody's
        self._engine.sync(as_module(given, version))
        self._holds = version

    def _texts(self, group: Sequence[Completion]) -> list[str]:
        tokens = [list(completion.tokens) for completion in group]
        return self._tokenizer.batch_decode(tokens, skip_special_tokens=True) if tokens else []


class JudgeActor:
    """Judges with a sandbox of its own."""

    _told: dict[str, Any] | None = None

    def open(self, environment: str | None, sandbox: Any, judge: Any) -> dict[str, Any]:
        """Open the sandbox, once → what is to be known of it. Raises UserError."""
        if self._told is not None:
            return self._told
        settings = SimpleNamespace(
            task=SimpleNamespace(environment=environment), sandbox=sandbox, judge=judge
        )
        self._stack = ExitStack()
        made = self._stack.enter_context(open_environments(settings))
        self._bench = Bench(made.make)
        self._environment(0)
        first = self._bench.made[0]
        self._told = {
            "name": made.name,
            "strength": made.strength,
            "version": first.version,
            "known": first.state_dict() if isinstance(first, StatefulEnvironment) else None,
            "sits": isinstance(first, IncrementalEnvironment),
        }
        return self._told

    def know(self, number: int, state: Known) -> None:
        """Environment `number` knows this and nothing else."""
        self._environment(number)
        self._bench.know(number, state)

    def judge(self, number: int, own: list[Submission]) -> tuple[Judged, float]:
        """→ what was judged, and the seconds that it took."""
        begin = time.monotonic()
        self._environment(number)
        return self._bench.judged(number, own), time.monotonic() - begin

    def judge_written(
        self, number: int, own: list[tuple[int, Problem]], *parts: Part
    ) -> tuple[Judged, float]:
        """Judge the responses to prompts `own` of a batch that the engines wrote, in `parts`."""
        return self.judge(number, submissions(own, parts))

    def begin(self, number: int, own: list[tuple[int, Submission]]) -> bool:
        """Judge some of what `judge_begun` will be asked for → true: it is done."""
        self._environment(number)
        self._bench.begin(number, own)
        return True

    def judge_begun(self, number: int, own: list[tuple[int, Submission]]) -> tuple[Judged, float]:
        """Judge what of these it has not begun with, and those in doubt."""
        begin = time.monotonic()
        self._environment(number)
        return self._bench.judged_begun(number, own), time.monotonic() - begin

    def close(self) -> None:
        """Back to before `open`."""
        if self._told is not None:
            self._told = None
            self._stack.close()

    def _environment(self, number: int) -> None:
        while len(self._bench.made) <= number:
            self._bench.add()


def submissions(own: Sequence[tuple[int, Problem]], parts: Sequence[Part]) -> list[Submission]:
    """Responses to the prompts with these numbers; the engines wrote every so-many-th each."""
    size = len(parts)
    return [
        Submission(problem, text)
        for number, problem in own
        for text in parts[number % size].texts[number // size]
    ]
