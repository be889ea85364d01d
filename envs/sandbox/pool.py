"""Keeps a set of workers busy with jobs, and replaces those that die or hang.

One thread serves all workers through a selector; nothing is started in the background, so that
closing the iterator or an interrupt leaves no thread behind. A backend provides the handles.
"""

from __future__ import annotations

import bisect
import logging
import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from envs.sandbox.base import Execution, Job, KeepGoing, Outcome, Sandbox, SandboxError
from envs.sandbox.inside.framing import STDERR_TAIL
from envs.sandbox.python_runtime import versions
from envs.sandbox.worker import Task, WorkerConnection, WorkerHandle, WorkerLost

__all__ = ["Pool", "WorkerHandle", "default_workers"]

ATTEMPTS = 2  # a job that loses two workers is given up
INNOCENT_LOSSES = 10  # count as one loss if the program had not begun to run
FAILED_STARTS = 3  # in a row, after which no further worker is tried
POLL_S = 1.0
AHEAD = 2  # shots that wait at a worker behind the one that runs, as long as there are plenty

log = logging.getLogger(__name__)


def default_workers() -> int:
    """All cores that this process may use: it needs little of them while programs run.

    SPO_BENCH_CORES says how many, where it shares them with others.
    """
    return int(os.environ.get("SPO_BENCH_CORES", 0)) or len(os.sched_getaffinity(0))


class Pool(Sandbox):
    """A sandbox made of equal workers, each of which `factory` returns unstarted."""

    def __init__(
        self, factory: Callable[[], WorkerHandle], workers: int, *, name: str, strength: str
    ) -> None:
        self.name, self.strength = name, strength
        self.platform = f"{name}, {versions()}"
        self.factory, self.workers = factory, workers or default_workers()
        self.replaced = 0  # workers lost and replaced so far
        self.shots = 0  # jobs whose first input had a process of its own so far
        self._failed_starts = 0
        self._selector = selectors.DefaultSelector()
        self._crew: dict[WorkerConnection, int] = {}  # each with its descriptor in the selector
        self._waiting: deque[Task] = deque()
        self._ended: list[Task] = []
        self._closed = self._running = self._abandoned = False

    def run(
        self, jobs: Sequence[Job], keep_going: KeepGoing
    ) -> Iterator[tuple[int, list[Execution]]]:
        if self._closed:
            raise SandboxError("this sandbox is closed; open another")
        if self._running:
            raise SandboxError("this sandbox is running other jobs; let it end, or open another")
        self.fit(jobs)
        tasks = sorted((Task(i, job) for i, job in enumerate(jobs)), key=Task.order)
        self._waiting, self._ended, left = deque(tasks), [], len(tasks)
        self._running, self._abandoned = True, False
        try:
            while left:
                if self._abandoned:
                    raise SandboxError("what ran here was abandoned")
                self._hire(left)
                self._assign()
                self._exchange(keep_going)
                left -= len(self._ended)
                while self._ended:
                    task = self._ended.pop(0)
                    yield task.index, task.executions
        finally:
            self._running = False
            for worker in [worker for worker in self._crew if worker.tasks]:
                self._dismiss(worker)

    def abandon(self) -> None:
        """See Sandbox: at the latest after POLL_S."""
        self._abandoned = True

    def fit(self, jobs: Sequence[Job]) -> None:
        """Make ready for jobs, before any of them runs."""

    def close(self) -> None:
        for worker in list(self._crew):
            self._dismiss(worker)
        if not self._closed:
            self._closed = True
            self._selector.close()

    # ---- the crew ----

    def _hire(self, tasks: int) -> None:
        """Start workers until the crew is complete; their READY is awaited in `_exchange`."""
        while len(self._crew) < min(self.workers, tasks):
            handle = self.factory()
            try:
                handle.start()
                self._follow(WorkerConnection(handle))
            except BaseException:
                handle.kill()
                raise

    def _follow(self, worker: WorkerConnection) -> None:
        """Have the selector look at the descriptor that the worker has now."""
        number, before = worker.handle.fileno(), self._crew.get(worker)
        if number == before:
            return
        if before is not None:
            self._selector.unregister(before)
        self._selector.register(number, selectors.EVENT_READ, worker)
        self._crew[worker] = number

    def _dismiss(self, worker: WorkerConnection) -> None:
        self._selector.unregister(self._crew.pop(worker))
        worker.handle.kill()

    def _replace(self, worker: WorkerConnection, reason: str) -> None:
        """Dismiss a lost worker; put its tasks back, or give up the one that it was running."""
        tasks = worker.tasks
        cause = worker.handle.cause_of_death()
        self._dismiss(worker)
        self.replaced += 1
        text = f"{reason}; {cause}" if cause else reason
        log.warning("%s sandbox: a worker was lost: %s", self.name, text)
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= FAILED_STARTS:
                raise SandboxError(f"{self.name} sandbox: workers do not start: {text}")
        if not tasks:
            return
        # Before its program has run, a job cannot be what ended the worker.
        tasks[0].losses += 1 if worker.may_have_run else 1 / INNOCENT_LOSSES
        if tasks[0].losses >= ATTEMPTS:
            first = tasks.pop(0)
            first.executions.append(Execution(Outcome.INFRA_ERROR, stderr=text[-STDERR_TAIL:]))
            self._ended.append(first)
        for task in tasks:
            self._put_back(task)

    def _put_back(self, task: Task) -> None:
        """Among those that wait, before its equals."""
        bisect.insort_left(self._waiting, task, key=Task.order)

    def _assign(self) -> None:
        """Give each worker that has none a job; while there are plenty, some more to come."""
        for ahead in range(AHEAD + 1):
            for worker in list(self._crew):
                if len(self._waiting) <= (len(self._crew) if ahead else 0):
                    break
                if not worker.takes(self._waiting[0], ahead):
                    continue
                if not worker.exhausted():
                    task = self._waiting.popleft()
                    self.shots += task.is_shot
                    worker.begin(task)
                elif worker.suspect or not worker.tasks:
                    for task in worker.tasks:
                        self._put_back(task)
                    self._dismiss(worker)  # the next round hires another

    # ---- the talk ----

    def _exchange(self, keep_going: KeepGoing) -> None:
        """Send and receive what can be now; add the tasks that ended to `_ended`."""
        for worker in list(self._crew):
            self._guarded(worker, worker.flush)
        for worker in self._crew:
            writing = selectors.EVENT_WRITE if worker.unsent else 0
            self._selector.modify(self._crew[worker], selectors.EVENT_READ | writing, worker)
        heard = set()
        for key, _ in self._selector.select(self._patience()):
            worker = key.data
            heard.add(worker)
            self._guarded(worker, lambda w=worker: w.listen(keep_going))
            self._guarded(worker, worker.flush)
            if worker.ready:
                self._failed_starts = 0
        # Only after reading: a host that was busy elsewhere must not blame its workers.
        now = time.monotonic()
        for worker in [w for w in self._crew if w not in heard and w.overdue(now)]:
            self._replace(worker, "it did not answer in time")

    def _patience(self) -> float:
        """Seconds until the next deadline, at most POLL_S."""
        now = time.monotonic()
        left = (w.deadline - now for w in self._crew if w.deadline is not None)
        return min(max(0.0, min(left, default=POLL_S)), POLL_S)

    def _guarded(self, worker: WorkerConnection, act: Callable[[], list[Task] | None]) -> None:
        """Let a worker act, unless it is gone already; replace it if it is lost in this."""
        if worker not in self._crew:
            return
        left = []
        try:
            left = act() or []
        except WorkerLost as error:
            left = error.left
            self._replace(worker, str(error))
        else:
            self._follow(worker)
        for task in left:
            if task.done:
                self._ended.append(task)
            else:
                self._put_back(task)
