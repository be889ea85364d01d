"""Keeps a set of workers busy with jobs, and replaces those that die or hang.

One thread serves all workers through a selector; nothing is started in the background, so that
closing the iterator or an interrupt leaves no thread behind. A backend provides the handles.
"""

from __future__ import annotations

import logging
import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from envs.sandbox.base import Execution, Job, KeepGoing, Outcome, Sandbox, SandboxError
from envs.sandbox.conversation import Conversation, Task, WorkerLost
from envs.sandbox.handle import WorkerHandle

__all__ = ["Pool", "WorkerHandle", "default_workers"]

ATTEMPTS = 2  # a job that loses two workers is given up
INNOCENT_LOSSES = 10  # count as one loss if the program had not begun to run
FAILED_STARTS = 3  # in a row, after which no further worker is tried
POLL_S = 1.0

log = logging.getLogger(__name__)


def default_workers() -> int:
    """All cores that this process may use but one, which reads the results; at least 1."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


class Pool(Sandbox):
    """A sandbox made of equal workers, each of which `factory` returns unstarted."""

    def __init__(
        self, factory: Callable[[], WorkerHandle], workers: int, *, name: str, strength: str
    ) -> None:
        self.name, self.strength = name, strength
        self.factory, self.workers = factory, workers or default_workers()
        self.replaced = 0  # workers lost and replaced so far
        self._failed_starts = 0
        self._selector = selectors.DefaultSelector()
        self._crew: set[Conversation] = set()
        self._closed = False

    def run(
        self, jobs: Sequence[Job], keep_going: KeepGoing
    ) -> Iterator[tuple[int, list[Execution]]]:
        if self._closed:
            raise SandboxError("this sandbox is closed; open another")
        waiting = deque(sorted((Task(i, job) for i, job in enumerate(jobs)), key=Task.order))
        left = len(waiting)
        try:
            while left:
                self._hire(left)
                self._assign(waiting)
                for task in self._step(waiting, keep_going):
                    left -= 1
                    yield task.index, task.executions
        finally:
            for worker in [worker for worker in self._crew if worker.task]:
                self._dismiss(worker)

    def close(self) -> None:
        for worker in list(self._crew):
            self._dismiss(worker)
        if not self._closed:
            self._closed = True
            self._selector.close()

    # ---- the crew ----

    def _hire(self, tasks: int) -> None:
        """Start workers until the crew is complete; their READY is awaited in `_step`."""
        while len(self._crew) < min(self.workers, tasks):
            handle = self.factory()
            try:
                handle.start()
                worker = Conversation(handle)
                self._selector.register(handle.fileno(), selectors.EVENT_READ, worker)
            except BaseException:
                handle.kill()
                raise
            self._crew.add(worker)

    def _dismiss(self, worker: Conversation) -> None:
        self._crew.discard(worker)
        self._selector.unregister(worker.handle.fileno())
        worker.handle.kill()

    def _replace(self, worker: Conversation, waiting: deque[Task], reason: str) -> Iterator[Task]:
        """Dismiss a lost worker; put its task back, or yield the task if it is to be given up."""
        task = worker.task
        cause = worker.handle.cause_of_death()
        self._dismiss(worker)
        self.replaced += 1
        text = f"{reason}; {cause}" if cause else reason
        log.warning("%s sandbox: a worker was lost: %s", self.name, text)
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= FAILED_STARTS:
                raise SandboxError(f"{self.name} sandbox: workers do not start: {text}")
        if task is None:
            return
        # Before its program has run, a job cannot be what ended the worker.
        task.losses += 1 if worker.compiled else 1 / INNOCENT_LOSSES
        if task.losses < ATTEMPTS:
            waiting.appendleft(task)
        else:
            task.executions.append(Execution(Outcome.INFRA_ERROR, stderr=text[-2000:]))
            yield task

    def _assign(self, waiting: deque[Task]) -> None:
        for worker in list(self._crew):
            if not waiting:
                break
            if worker.idle:
                if worker.exhausted():
                    self._dismiss(worker)  # the next round hires another
                else:
                    worker.begin(waiting.popleft())

    # ---- the talk ----

    def _step(self, waiting: deque[Task], keep_going: KeepGoing) -> Iterator[Task]:
        """Exchange what can be exchanged now; yield the tasks that ended."""
        for worker in list(self._crew):
            yield from self._guarded(worker, waiting, lambda: None)
            if worker in self._crew:
                writing = selectors.EVENT_WRITE if worker.unsent else 0
                self._selector.modify(
                    worker.handle.fileno(), selectors.EVENT_READ | writing, worker
                )
        heard = set()
        for key, _ in self._selector.select(self._patience()):
            worker = key.data
            heard.add(worker)
            yield from self._guarded(worker, waiting, lambda w=worker: w.listen(keep_going))
            if worker.ready:
                self._failed_starts = 0
        # Only after reading: a host that was busy elsewhere must not blame its workers.
        for worker in [w for w in self._crew if w not in heard and w.overdue(time.monotonic())]:
            yield from self._replace(worker, waiting, "it did not answer in time")

    def _patience(self) -> float:
        now = time.monotonic()
        left = (w.deadline - now for w in self._crew if w.deadline is not None)
        return min(max(0.0, min(left, default=POLL_S)), POLL_S)

    def _guarded(
        self, worker: Conversation, waiting: deque[Task], act: Callable[[], Task | None]
    ) -> Iterator[Task]:
        try:
            ended = act()
            worker.flush()
        except (WorkerLost, OSError) as error:
            yield from self._replace(worker, waiting, str(error))
        else:
            if ended is not None:
                yield ended
