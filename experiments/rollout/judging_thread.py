"""A thread that judges responses while others are generated."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from types import TracebackType

from envs.environment import IncrementalEnvironment, Submission
from envs.problem import Judgement
from experiments.run_dir.activity import Activity
from experiments.run_dir.interrupts import defer_interrupts

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
