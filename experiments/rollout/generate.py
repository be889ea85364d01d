"""A thread that judges responses while others are generated."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from types import TracebackType
from typing import TYPE_CHECKING

from envs.environment import Environment, IncrementalEnvironment, Submission
from envs.problem import Judgement
from envs.reward import RewardConfig
from envs.sandbox.pool import default_workers
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, FinishedResponse, Request, Sampling
from experiments.policy.loading import pick_device
from experiments.rollout.conversations import Awaited, Dialogue, Round, converse
from experiments.run_dir.activity import Activity
from experiments.run_dir.interrupts import defer_interrupts
from experiments.run_dir.ledger import Ledger
from experiments.sample import (
    Completion,
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

Numbered = Sequence[tuple[int, Submission]]


class JudgingThread:
    """Judge submitted responses in a thread, in one session of the judge.

    Use it as a context manager. The judge belongs to the thread until the block is left, by which
    time the thread has ended. If an exception leaves the block, running programs are abandoned.
    Of several threads each waits for the one before it, so that one session is open at a time.
    """

    def __init__(
        self, judge: IncrementalEnvironment, activity: Activity, after: JudgingThread | None = None
    ) -> None:
        self._activity = activity  # shows the number of judged responses
        self.busy_s = 0.0  # wall time with something to judge
        self._judge, self._after = judge, after
        self._judged: dict[int, Judgement] = {}
        self._batches: queue.SimpleQueue[Numbered | None] = queue.SimpleQueue()
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

    def submit(self, submissions: Numbered) -> None:
        """Queue numbered submissions. Raises the judge's exception, if it has failed."""
        if self._error is not None:
            raise self._error
        self._batches.put(submissions)

    def end(self) -> None:
        """Say that nothing more will be submitted."""
        self._batches.put(None)

    def judgements(self) -> list[Judgement]:
        """Wait for all judgements and return them in order. Raises as `submit` does."""
        self.end()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return [self._judged[index] for index in range(len(self._judged))]

    def _run(self) -> None:
        if self._after is not None:
            self._after._thread.join()
            self._after = None
        try:
            with closing(self._judge.open_session()) as session:
                while (batch := self._next_batch()) is not None and not self._stopped:
                    begin = time.monotonic()
                    self._judged.update(session.judge(batch))
                    self._activity.judged = len(self._judged)
                    self.busy_s += time.monotonic() - begin
                if not self._stopped:
                    begin = time.monotonic()
                    self._judged.update(session.finish())
                    self.busy_s += time.monotonic() - begin
        except BaseException as error:
            self._error = error

    def _next_batch(self) -> Numbered | None:
        """Wait for a batch and return all that is queued; None at the end."""
        batch = self._batches.get()
        while batch is not None and not self._batches.empty():
            more = self._batches.get()
            if more is None:
                self._batches.put(None)
                break
            batch = [*batch, *more]
        return batch


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
        tokens, problems = [p.tokens for p in prompts], [owner.problem for owner in owners]
        with Judging(self) as judging:
            completions, judgements = self._answer(
                Round(tokens, seeds, problems), judging, sampling, progress
            )
            found = judgements()
        return completions, rewarded_samples(owners, completions, found, self.reward, origin)

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
        with Judging(self) as judging:
            conversations = converse(
                dialogue,
                prompts,
                seeds,
                lambda asked: self._answer(asked, judging, sampling),
                judging.judge,
                progress or (lambda _: None),
                self.engine.release_memory,
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
        asked: Round,
        judging: Judging,
        sampling: Sampling,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[list[Completion], Awaited]:
        """Return a round's answers, flat, and a function that waits for their judgements."""
        activity, problems = self.activity or Activity(), asked.problems
        self.engine.on_tokens = activity.draw
        request = Request(asked.prompts, asked.seeds, sampling, asked.begun, asked.goes_on)
        first_index = [0, *accumulate(map(len, asked.seeds))]  # of each prompt's answers
        thread = judging.open_thread()
        submitted: set[int] = set()

        def submit(numbered: Sequence[tuple[int, Completion]]) -> None:
            assert thread is not None
            texts = texts_of([completion for _, completion in numbered], self.tokenizer)
            pairs = zip(numbered, texts, strict=True)
            thread.submit([(i, Submission(problems[i], text)) for (i, _), text in pairs])

        def hand_out(responses: Sequence[FinishedResponse]) -> None:
            if thread is not None and responses:
                numbered = [(first_index[prompt] + n, c) for prompt, n, c in responses]
                submit(numbered)
                submitted.update(index for index, _ in numbered)
            activity.advance(len(responses))
            if progress:
                progress(len(responses))

        with self.phase("generate"):
            activity.expect(len(problems), "responses")
            completions = [
                answer for group in self.engine.generate(request, hand_out) for answer in group
            ]
        if thread is None:
            with self.phase("judge"):
                activity.expect(len(problems), "responses")
                found = judged(completions, problems, self.judge, self.tokenizer)
            return completions, lambda: found
        if missing := [(i, c) for i, c in enumerate(completions) if i not in submitted]:
            submit(missing)
        thread.end()
        return completions, partial(judging.wait, thread)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Charge a block to this phase, if there is a ledger."""
        return self.ledger.phase(name) if self.ledger else nullcontext()


class Judging(ExitStack):
    """One batch's judging: in threads beside the engine, one after the other, or at once.

    Sessions of the judge are in the order in which they are asked for, whether in threads or not.
    """

    def __init__(self, responder: Responder) -> None:
        super().__init__()
        self.responder = responder
        self._last: JudgingThread | None = None

    def open_thread(self) -> JudgingThread | None:
        """Return a thread that judges after all before it; None if judging is not to overlap."""
        at = self.responder
        if not (at.overlap and isinstance(at.judge, IncrementalEnvironment)):
            return None
        thread = JudgingThread(at.judge, at.activity or Activity(), self._last)
        self._last = self.enter_context(thread)
        return thread

    def judge(self, submissions: Sequence[Submission]) -> Awaited:
        """Judge programs; the function that is returned waits for the judgements."""
        thread = self.open_thread()
        if thread is None:
            with self.responder.phase("judge"):
                found = self.responder.judge.judge(submissions)
            return lambda: found
        thread.submit(list(enumerate(submissions)))
        thread.end()
        return partial(self.wait, thread)

    def wait(self, thread: JudgingThread) -> list[Judgement]:
        """Return a thread's judgements, and charge its work and the time until it is done."""
        ledger = self.responder.ledger
        with ledger.waiting("judge") if ledger else nullcontext():
            judgements = thread.judgements()
        if ledger:
            ledger.work("judge", thread.busy_s)
        return judgements
