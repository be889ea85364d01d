"""Generate responses, judge them and compute rewards; judging may overlap with generation.

Overlapping changes no sample: the engine generates as it would alone, and verdicts and counts do
not depend on the order of submissions. If one core has to do both, they take turns, which costs
less CPU time (`docs/reference/judging.md`).
"""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from operator import itemgetter

from transformers import PreTrainedTokenizerBase

from envs.problem import Environment, IncrementalEnvironment, Judgement, Problem, Submission
from envs.reward import RewardConfig
from envs.sandbox.pool import default_workers
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, FinishedResponse, Request, Sampling
from experiments.policy.loading import pick_device
from experiments.rollout.conversations import Awaited, Dialogue, converse
from experiments.run_dir.interrupts import defer_interrupts
from experiments.run_dir.ledger import Ledger
from experiments.run_dir.progress import VERBS, Activity
from experiments.sample import (
    Completion,
    Origin,
    PromptedProblem,
    Sample,
    Turn,
    rewarded_samples,
)

ABANDON_EVERY_S = 0.2  # interval between requests to a running judge to stop

Numbered = Sequence[tuple[int, Submission]]


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
    activity: Activity = field(default_factory=Activity)  # shows how far it is
    dialogue: Dialogue | None = None  # of conversations; None: a response is one answer

    def respond(
        self,
        prompts: Sequence[PromptedProblem],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        origin: Origin,
        begun: Sequence[Sequence[tuple[int, ...]]] | None = None,
    ) -> tuple[list[Completion], list[Sample]]:
        """Return len(seeds[i]) responses to each prompts[i], flat, and their samples.

        `begun[i][n]`: the first tokens of response n to prompts[i], which is no conversation.
        """
        owners = [p for p, group in zip(prompts, seeds, strict=True) for _ in group]
        if not owners:
            return [], []
        with Judging(self) as judging:
            if self.dialogue is None:
                tokens = [p.tokens for p in prompts]
                request = Request(tokens, seeds, sampling, begun, continues=begun is not None)
                problems = [owner.problem for owner in owners]
                completions, found = self._answer(request, problems, judging)
                judgements, turns = found(), None
                if begun is not None:
                    pairs = list(zip(chain.from_iterable(begun), completions, strict=True))
                    turns = [_turns_after(prefix, one) for prefix, one in pairs]
                    completions = [_whole(prefix, one) for prefix, one in pairs]
            else:
                conversations = converse(
                    self.dialogue,
                    prompts,
                    seeds,
                    sampling,
                    lambda request, problems: self._answer(request, problems, judging),
                    lambda submissions: judging.start(submissions).wait,
                    self.engine.release_memory,
                )
                completions = [one.completion for one in conversations]
                judgements = [one.judgements[-1] for one in conversations]
                turns = [tuple(one.turns) for one in conversations]
        given = (owners, completions, judgements, self.reward, origin, turns)
        return completions, rewarded_samples(*given)

    def _answer(
        self,
        request: Request,
        problems: Sequence[Problem],
        judging: Judging,
    ) -> tuple[list[Completion], Awaited]:
        """Return the answers to a request, flat, and a function that waits for their judgements."""
        self.engine.on_tokens = self.activity.draw
        first_index = [0, *accumulate(map(len, request.seeds))]  # of each prompt's answers
        session, submitted = judging.start(), set[int]()
        begun = [*chain.from_iterable(request.begun or ())] if request.continues else None

        def submit(numbered: Sequence[tuple[int, Completion]]) -> None:
            texts = self.tokenizer.batch_decode(
                [[*(begun[i] if begun else ()), *one.tokens] for i, one in numbered],
                skip_special_tokens=True,
            )
            pairs = zip(numbered, texts, strict=True)
            session.submit([(i, Submission(problems[i], text)) for (i, _), text in pairs])
            submitted.update(i for i, _ in numbered)

        def finished(responses: Sequence[FinishedResponse]) -> None:
            if self.overlap and responses:
                submit([(first_index[prompt] + n, one) for prompt, n, one in responses])
            self.activity.advance(len(responses))

        with self.ledger.phase("generate") if self.ledger else nullcontext():
            self.activity.expect(len(problems), "responses")
            self.activity.judged = session.judged if session.future else None
            groups = self.engine.generate(request, finished)
        completions = [completion for group in groups for completion in group]
        if missing := [pair for pair in enumerate(completions) if pair[0] not in submitted]:
            submit(missing)
        session.end()
        return completions, session.wait


def _whole(prefix: tuple[int, ...], end: Completion) -> Completion:
    """Return a response with the tokens that it began with."""
    logps = (*[0.0] * len(prefix), *end.logps)
    return replace(end, tokens=(*prefix, *end.tokens), logps=logps)


def _turns_after(prefix: tuple[int, ...], end: Completion) -> tuple[Turn, ...]:
    """Return the turns of a response that began with a prefix, which is context for the loss."""
    return (Turn(0, len(prefix)), Turn(len(end.tokens))) if prefix else ()


class Judging:
    """The judging of one call of `respond`, one session after the other.

    If it overlaps, it works in a thread beside the engine; else when judgements are waited for. Use
    it as a context manager: the judge belongs to the thread until the block is left. If an
    exception leaves the block, running programs are abandoned.
    """

    def __init__(self, responder: Responder) -> None:
        self.judge, self.activity = responder.judge, responder.activity
        self.ledger = responder.ledger
        overlaps = responder.overlap and isinstance(self.judge, IncrementalEnvironment)
        self.thread = ThreadPoolExecutor(1, "judge") if overlaps else None
        self.stopped = False
        self.sessions: list[Session] = []

    def __enter__(self) -> Judging:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if self.thread is None:
            return
        with defer_interrupts():  # or the judge would be left with a closed sandbox
            self.stopped = error is not None
            for session in self.sessions:
                session.end()
            pending = {session.future for session in self.sessions if session.future}
            while self.stopped and pending:
                assert isinstance(self.judge, IncrementalEnvironment)
                self.judge.abandon()
                pending = wait(pending, ABANDON_EVERY_S).not_done
            self.thread.shutdown()

    def start(self, submissions: Sequence[Submission] | None = None) -> Session:
        """Start a session, which is complete if its `submissions` are given."""
        session = Session(self)
        self.sessions.append(session)
        if submissions is not None:
            session.submit(list(enumerate(submissions)))
            session.end()
        return session


class Session:
    """Numbered submissions that are judged together, in the thread if there is one."""

    def __init__(self, judging: Judging) -> None:
        self.judging = judging
        self.batches: queue.SimpleQueue[Numbered | None] = queue.SimpleQueue()
        self.submitted = 0
        self.judged: dict[int, Judgement] = {}  # by number, each as soon as it is made
        self.busy_s = 0.0  # wall time of the thread with something to judge
        self.future: Future[list[Judgement]] | None = None
        if judging.thread is not None:
            self.future = judging.thread.submit(self._judge)

    def submit(self, submissions: Numbered) -> None:
        """Queue numbered submissions. Raises the judge's exception, if it has failed."""
        if self.future is not None and self.future.done():
            self.future.result()
        self.submitted += len(submissions)
        self.batches.put(submissions)

    def end(self) -> None:
        """Note that nothing more will be submitted."""
        self.batches.put(None)

    def wait(self) -> list[Judgement]:
        """Return all judgements in the order of their numbers; charge work and waiting."""
        ledger, activity = self.judging.ledger, self.judging.activity
        charging = ledger and (ledger.waiting if self.future else ledger.phase)
        with charging("judge") if charging else nullcontext(), activity.phase(VERBS["judge"]):
            activity.expect(self.submitted, "programs", self.judged)
            judgements = self.future.result() if self.future else self._judge()
        if ledger and self.future:
            ledger.work("judge", self.busy_s)
        return judgements

    def _judge(self) -> list[Judgement]:
        judge, judged = self.judging.judge, self.judged
        if not isinstance(judge, IncrementalEnvironment):
            submissions = sorted(self._next_batch() or (), key=itemgetter(0))
            return judge.judge([submission for _, submission in submissions])
        if self.judging.stopped:
            return []
        with closing(judge.open_session()) as session:
            while (batch := self._next_batch()) is not None and not self.judging.stopped:
                begin = time.monotonic()
                judged.update(session.judge(batch))
                self.busy_s += time.monotonic() - begin
            if not self.judging.stopped:
                begin = time.monotonic()
                judged.update(session.finish())
                self.busy_s += time.monotonic() - begin
        return [judged[number] for number in sorted(judged)]

    def _next_batch(self) -> Numbered | None:
        """Wait for a batch and return all that is queued; None at the end."""
        batch = self.batches.get()
        while batch is not None and not self.batches.empty():
            more = self.batches.get()
            if more is None:
                self.batches.put(None)
                break
            batch = [*batch, *more]
        return batch
