"""Generate responses, judge them and compute rewards; judging may overlap with generation.

Overlapping changes no sample: the engine generates as it would alone, and verdicts and counts do
not depend on the order of submissions (`envs/judge/session.py`). If one core has to do both, they
take turns, which costs less CPU time (`docs/reference/judging.md`).
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
from typing import TYPE_CHECKING

from envs.environment import Environment, IncrementalEnvironment, Submission
from envs.problem import Judgement, Problem
from envs.reward import RewardConfig
from envs.sandbox.pool import default_workers
from experiments.config.schema import RunConfig
from experiments.engines.base import Completion, Engine, FinishedResponse, Sampling
from experiments.policy.loading import pick_device
from experiments.rollout.conversations import Dialogue, converse
from experiments.run_dir.activity import Activity
from experiments.run_dir.budget import Ledger
from experiments.run_dir.interrupts import defer_interrupts
from experiments.sample import (
    Origin,
    PromptedProblem,
    Sample,
    judged,
    rewarded_samples,
    texts_of,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

JOIN_S = 0.2  # interval between requests to a running judge to stop


def overlaps(config: RunConfig) -> bool:
    """Return whether this process judges while it generates: allowed, and a core for each."""
    shared = default_workers() == 1 and pick_device(config.model.device).type == "cpu"
    return config.runtime.overlap and not shared


@dataclass(frozen=True)
class Responder:
    """An engine and a judge that turn prompts into samples."""

    engine: Engine
    judge: Environment
    tokenizer: PreTrainedTokenizerBase
    reward: RewardConfig
    overlap: bool
    ledger: Ledger | None = None  # times the generate and judge phases; None: the caller does
    activity: Activity | None = None  # shows how far it is
    dialogue: Dialogue | None = None  # of conversations; None: a response is one answer

    def respond(
        self,
        prompts: Sequence[PromptedProblem],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        origin: Origin,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[list[Completion], list[Sample]]:
        """Return len(seeds[i]) responses to each prompts[i], flat, and their samples.

        `progress` is called with the number of newly finished responses.
        """
        owners = [p for p, group in zip(prompts, seeds, strict=True) for _ in group]
        if not owners:
            return [], []
        if self.dialogue is not None:
            return self._converse(self.dialogue, prompts, seeds, sampling, origin, progress)
        completions, judgements = self._answer(
            [prompt.tokens for prompt in prompts],
            seeds,
            [owner.problem for owner in owners],
            sampling,
            progress,
        )
        return completions, rewarded_samples(owners, completions, judgements, self.reward, origin)

    def _converse(
        self,
        dialogue: Dialogue,
        prompts: Sequence[PromptedProblem],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        origin: Origin,
        progress: Callable[[int], None] | None,
    ) -> tuple[list[Completion], list[Sample]]:
        """Return whole conversations in the place of responses."""

        def judge(submissions: Sequence[Submission]) -> list[Judgement]:
            with self._phase("judge"):
                return self.judge.judge(submissions)

        conversations = converse(
            dialogue,
            prompts,
            seeds,
            lambda contexts, seeds, problems: self._answer(contexts, seeds, problems, sampling),
            judge,
            progress or (lambda _: None),
        )
        completions = [one.completion for one in conversations]
        judgements = [one.judgement for one in conversations]
        samples = rewarded_samples(
            [one.prompt for one in conversations],
            completions,
            [found for found in judgements if found is not None],
            self.reward,
            origin,
            [tuple(one.turns) for one in conversations],
        )
        return completions, samples

    def _answer(
        self,
        contexts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        problems: Sequence[Problem],
        sampling: Sampling,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[list[Completion], list[Judgement]]:
        """Return len(seeds[i]) answers to each context, flat, and their judgements.

        `problems`: what each answer is judged by.
        """
        activity = self.activity or Activity()  # one that nobody shows

        def count(responses: Sequence[FinishedResponse]) -> None:
            activity.advance(len(responses))
            if progress:
                progress(len(responses))

        self.engine.on_tokens = activity.draw
        if not (self.overlap and isinstance(self.judge, IncrementalEnvironment)):
            with self._phase("generate"):
                activity.expect(len(problems), "responses")
                groups = self.engine.generate(contexts, seeds, sampling, count)
            completions = [completion for group in groups for completion in group]
            with self._phase("judge"):
                activity.expect(len(problems), "responses")
                return completions, judged(completions, problems, self.judge, self.tokenizer)
        with JudgingThread(self.judge, self.tokenizer, problems, seeds, activity) as thread:

            def judge_finished(responses: Sequence[FinishedResponse]) -> None:
                thread.submit(responses)
                count(responses)

            with self._phase("generate"):
                activity.expect(len(problems), "responses")
                groups = self.engine.generate(contexts, seeds, sampling, judge_finished)
            completions = [completion for group in groups for completion in group]
            with self.ledger.waiting("judge") if self.ledger else nullcontext():
                judgements = thread.judgements(completions)
        if self.ledger:
            self.ledger.work("judge", thread.busy_s)
        return completions, judgements

    def _phase(self, name: str) -> AbstractContextManager[None]:
        return self.ledger.phase(name) if self.ledger else nullcontext()


class JudgingThread:
    """Judge submitted responses in a thread, in one session of the judge.

    Use it as a context manager. The judge belongs to the thread until the block is left, by which
    time the thread has ended. If an exception leaves the block, running programs are abandoned.
    """

    def __init__(
        self,
        judge: IncrementalEnvironment,
        tokenizer: PreTrainedTokenizerBase,
        problems: Sequence[Problem],
        seeds: Sequence[Sequence[int]],
        activity: Activity,
    ) -> None:
        """`problems`: what each response is judged by."""
        self._activity = activity  # shows the number of judged responses
        self.busy_s = 0.0  # wall time with something to judge
        self._judge, self._tokenizer, self._problems = judge, tokenizer, problems
        self._first_index = [0, *accumulate(map(len, seeds))]  # of each prompt's responses
        self._submitted: set[int] = set()
        self._judged: dict[int, Judgement] = {}
        self._batches: queue.SimpleQueue[list[tuple[int, Completion]] | None] = queue.SimpleQueue()
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
            self._batches.put(None)
            while self._thread.is_alive():
                if self._stopped:
                    self._judge.abandon()
                self._thread.join(JOIN_S)

    def submit(self, responses: Sequence[FinishedResponse]) -> None:
        """Queue finished responses. Raises the judge's exception, if it has failed."""
        if self._error is not None:
            raise self._error
        batch = [(self._first_index[prompt] + number, c) for prompt, number, c in responses]
        self._submitted |= {index for index, _ in batch}
        self._batches.put(batch)

    def judgements(self, completions: Sequence[Completion]) -> list[Judgement]:
        """Return all judgements in order, after judging responses that were not submitted.

        Raises as `submit` does.
        """
        missing = [(i, c) for i, c in enumerate(completions) if i not in self._submitted]
        if missing:
            self._batches.put(missing)
        self._batches.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return [self._judged[index] for index in range(len(completions))]

    def _run(self) -> None:
        try:
            with closing(self._judge.open_session()) as session:
                while (batch := self._next_batch()) is not None and not self._stopped:
                    begin = time.monotonic()
                    texts = texts_of([completion for _, completion in batch], self._tokenizer)
                    submissions = [
                        (index, Submission(self._problems[index], text))
                        for (index, _), text in zip(batch, texts, strict=True)
                    ]
                    self._judged.update(session.judge(submissions))
                    self._activity.judged = len(self._judged)
                    self.busy_s += time.monotonic() - begin
                if not self._stopped:
                    begin = time.monotonic()
                    self._judged.update(session.finish())
                    self.busy_s += time.monotonic() - begin
        except BaseException as error:
            self._error = error

    def _next_batch(self) -> list[tuple[int, Completion]] | None:
        """Wait for a batch and return all that is queued; None at the end."""
        batch = self._batches.get()
        while batch is not None and not self._batches.empty():
            more = self._batches.get()
            if more is None:
                self._batches.put(None)
                break
            batch = batch + more
        return batch
