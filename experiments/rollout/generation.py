"""Responses to prompts: written, judged and paid; with `overlap`, judged while others are written.

Overlapping changes no sample: the engine writes as it would alone, and the judge's verdicts and
counts do not depend on how its submissions come (`envs/judge/session.py`). Where one core has to do both,
they take turns, which takes less CPU time (`docs/reference/judging.md`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from types import TracebackType

from envs.environment import Environment, IncrementalEnvironment, Submission
from envs.problem import Judgement
from envs.reward import RewardConfig
from envs.sandbox.pool import default_workers
from experiments.config.schema import RunConfig
from experiments.engines.base import Completion, Engine, FinishedResponse, Sampling
from experiments.policy.loading import pick_device
from experiments.run_dir.budget import Ledger
from experiments.run_dir.interrupts import defer_interrupts
from experiments.sample import (
    Origin,
    PromptedProblem,
    Sample,
    judge_completions,
    rewarded_samples,
    texts_of,
)

JOIN_S = 0.2  # how soon to ask again a judge that is to stop


def overlaps(config: RunConfig) -> bool:
    """Whether a run of this process judges while it writes: it may, and has a core for each."""
    shared = default_workers() == 1 and pick_device(config.model.device).type == "cpu"
    return config.runtime.overlap and not shared


@dataclass(frozen=True)
class Responder:
    """Who writes and who judges."""

    engine: Engine
    judge: Environment
    tokenizer: object
    reward: RewardConfig
    overlap: bool
    ledger: Ledger | None = None  # charged with generate and judge, where they are not all one

    def respond(
        self,
        prompts: Sequence[PromptedProblem],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        origin: Origin,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[list[Completion], list[Sample]]:
        """len(seeds[i]) responses to prompts[i], one after the other, and the samples they make.

        `progress` is told how many more responses are written.
        """
        owners = [p for p, group in zip(prompts, seeds, strict=True) for _ in group]
        if not owners:
            return [], []
        tokens = [prompt.tokens for prompt in prompts]
        if not (self.overlap and isinstance(self.judge, IncrementalEnvironment)):
            told = (lambda written: progress(len(written))) if progress else None
            with self._phase("generate"):
                groups = self.engine.generate(tokens, seeds, sampling, told)
            flat = [completion for group in groups for completion in group]
            with self._phase("judge"):
                parts = (self.judge, self.tokenizer, self.reward, origin)
                return flat, judge_completions(owners, flat, *parts)
        with JudgingThread(self.judge, self.tokenizer, owners, seeds) as thread:

            def finished(written: Sequence[FinishedResponse]) -> None:
                thread.give(written)
                if progress:
                    progress(len(written))

            with self._phase("generate"):
                groups = self.engine.generate(tokens, seeds, sampling, finished)
            flat = [completion for group in groups for completion in group]
            with self.ledger.waiting("judge") if self.ledger else nullcontext():
                judgements = thread.judgements(flat)
        if self.ledger:
            self.ledger.work("judge", thread.busy_s)
        return flat, rewarded_samples(owners, flat, judgements, self.reward, origin)

    def _phase(self, name: str) -> AbstractContextManager[None]:
        return self.ledger.phase(name) if self.ledger else nullcontext()


class JudgingThread:
    """Judges what it is given, on a thread of its own, in one session of the judge.

    Used as a context: left by an exception, it has what is running abandoned, and in any case the
    thread has ended when the block is left. The judge belongs to it until then.
    """

    def __init__(
        self,
        judge: IncrementalEnvironment,
        tokenizer: object,
        owners: Sequence[PromptedProblem],
        seeds: Sequence[Sequence[int]],
    ) -> None:
        self.busy_s = 0.0  # wall time in which there was something to judge
        self._judge, self._tokenizer, self._owners = judge, tokenizer, owners
        self._first = [0, *accumulate(map(len, seeds))]  # of each prompt's responses
        self._given: set[int] = set()
        self._judged: dict[int, Judgement] = {}
        self._pieces: queue.SimpleQueue[list[tuple[int, Completion]] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="judge", daemon=True)

    def __enter__(self) -> JudgingThread:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with (
            defer_interrupts()
        ):  # an interrupt waits, or the judge would be left with a sandbox that is closed
            self._stopped = kind is not None
            self._pieces.put(None)
            while self._thread.is_alive():
                if self._stopped:
                    self._judge.abandon()
                self._thread.join(JOIN_S)

    def give(self, written: Sequence[FinishedResponse]) -> None:
        """Have responses judged. Raises what the judge has raised."""
        if self._error is not None:
            raise self._error
        piece = [(self._first[prompt] + number, c) for prompt, number, c in written]
        self._given |= {index for index, _ in piece}
        self._pieces.put(piece)

    def judgements(self, completions: Sequence[Completion]) -> list[Judgement]:
        """Of all responses, in order; of those too that were not given. Raises as `give` does."""
        rest = [(i, c) for i, c in enumerate(completions) if i not in self._given]
        if rest:
            self._pieces.put(rest)
        self._pieces.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return [self._judged[index] for index in range(len(completions))]

    def _run(self) -> None:
        try:
            with closing(self._judge.open_session()) as session:
                while (piece := self._next()) is not None and not self._stopped:
                    begin = time.monotonic()
                    texts = texts_of([completion for _, completion in piece], self._tokenizer)
                    submissions = [
                        (index, Submission(self._owners[index].problem, text))
                        for (index, _), text in zip(piece, texts, strict=True)
                    ]
                    self._judged.update(session.judge(submissions))
                    self.busy_s += time.monotonic() - begin
                if not self._stopped:
                    begin = time.monotonic()
                    self._judged.update(session.finish())
                    self.busy_s += time.monotonic() - begin
        except BaseException as error:
            self._error = error

    def _next(self) -> list[tuple[int, Completion]] | None:
        """All that is there, once something is; None at the end."""
        piece = self._pieces.get()
        while piece is not None and not self._pieces.empty():
            more = self._pieces.get()
            if more is None:
                self._pieces.put(None)
                break
            piece = piece + more
        return piece
