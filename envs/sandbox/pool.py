"""Run jobs on a set of workers, and replace workers that die or hang.

One thread serves all workers through a selector. Nothing is started in the background, so closing
the iterator or an interrupt leaves no thread behind. A backend provides the worker handles.
"""

from __future__ import annotations

import bisect
import logging
import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from envs.sandbox.base import Execution, Job, KeepGoing, Outcome, Sandbox, SandboxError
from envs.sandbox.inside.framing import STDERR_TAIL
from envs.sandbox.python_runtime import versions
from envs.sandbox.worker import Task, WorkerConnection, WorkerHandle, WorkerLost

__all__ = ["Pool", "WorkerHandle", "default_workers"]

ATTEMPTS = 2  # a job that loses two workers is given up
INNOCENT_LOSSES = 10  # count as one loss if the program had not begun to run
FAILED_STARTS = 3  # in a row, after which no further worker is tried
POLL_S = 1.0
QUEUE_AHEAD = 2  # one-shot jobs that wait at a busy worker, while there are plenty

log = logging.getLogger(__name__)


def default_workers() -> int:
    """Return the number of cores that this process may use.

    The process itself needs little of them while programs run. SPO_BENCH_CORES sets the number
    where it shares them with others.
    """
    return int(os.environ.get("SPO_BENCH_CORES", 0)) or len(os.sched_getaffinity(0))


class Pool(Sandbox):
    """A sandbox made of equal workers, each of which `factory` returns unstarted."""

    takes_more = True

    def __init__(
        self, factory: Callable[[], WorkerHandle], workers: int, *, name: str, strength: str
    ) -> None:
        self.name, self.strength = name, strength
        self.platform = f"{name}, {versions()}"
        self.factory, self.workers = factory, workers or default_workers()
        self.replaced = 0  # workers lost and replaced so far
        self.one_shots = 0  # jobs so far whose first input had a process of its own
        self._failed_starts = 0
        self._selector = selectors.DefaultSelector()
        self._connections: dict[WorkerConnection, int] = {}  # → its descriptor in the selector
        self._waiting: deque[Task] = deque()
        self._again: deque[Task] = deque()  # in doubt: these run on a share of the workers
        self._ended: list[Task] = []
        self._closed = self._running = self._abandoned = False

    def run(
        self, jobs: Sequence[Job], keep_going: KeepGoing
    ) -> Iterator[tuple[int, list[Execution]]]:
        if self._closed:
            raise SandboxError("this sandbox is closed; open another")
        if self._running:
            raise SandboxError("this sandbox is running other jobs; wait for them, or open another")
        self.prepare_for(jobs)
        self._waiting, self._again, self._ended, left, admitted = deque(), deque(), [], 0, 0
        self._running, self._abandoned = True, False
        try:
            while left or admitted < len(jobs):
                if self._abandoned:
                    raise SandboxError("the job in this sandbox was abandoned")
                left, admitted = left + self._admit(jobs, admitted), len(jobs)
                self._start_workers(left)
                self._assign()
                self._exchange(keep_going)
                left -= len(self._ended)
                while self._ended:
                    task = self._ended.pop(0)
                    yield task.index, task.executions
        finally:
            self._running = False
            for worker in [worker for worker in self._connections if worker.tasks]:
                self._remove(worker)

    def _admit(self, jobs: Sequence[Job], first: int) -> int:
        """Have the jobs from number `first` on wait for a worker; return how many these are."""
        tasks = [Task(index, jobs[index]) for index in range(first, len(jobs))]
        self._again.extend(task for task in tasks if task.job.again)
        if others := [task for task in tasks if not task.job.again]:
            self._waiting = deque(sorted([*self._waiting, *others], key=Task.order))
        return len(tasks)

    def abandon(self) -> None:
        """See Sandbox. The run ends after POLL_S at the latest."""
        self._abandoned = True

    def prepare_for(self, jobs: Sequence[Job]) -> None:
        """Prepare for jobs before any of them runs; a backend may override this."""

    def close(self) -> None:
        for worker in list(self._connections):
            self._remove(worker)
        if not self._closed:
            self._closed = True
            self._selector.close()

    # ---- workers ----

    def _start_workers(self, tasks: int) -> None:
        """Start workers up to the number needed; their READY is awaited in `_exchange`."""
        while len(self._connections) < min(self.workers, tasks):
            handle = self.factory()
            try:
                handle.start()
                self._register(WorkerConnection(handle))
            except BaseException:
                handle.kill()
                raise

    def _register(self, worker: WorkerConnection) -> None:
        """Have the selector watch the descriptor that the worker has now."""
        descriptor, before = worker.handle.fileno(), self._connections.get(worker)
        if descriptor == before:
            return
        if before is not None:
            self._selector.unregister(before)
        self._selector.register(descriptor, selectors.EVENT_READ, worker)
        self._connections[worker] = descriptor

    def _remove(self, worker: WorkerConnection) -> None:
        self._selector.unregister(self._connections.pop(worker))
        worker.handle.kill()

    def _replace(self, worker: WorkerConnection, reason: str) -> None:
        """Remove a lost worker; requeue its tasks, or give up the one that it was running."""
        tasks = worker.tasks
        cause = worker.handle.cause_of_death()
        self._remove(worker)
        self.replaced += 1
        text = f"{reason}; {cause}" if cause else reason
        log.warning("%s sandbox: a worker was lost: %s", self.name, text)
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= FAILED_STARTS:
                raise SandboxError(f"{self.name} sandbox: workers do not start: {text}")
        if not tasks:
            return
        # A job whose program has not run cannot have ended the worker.
        tasks[0].losses += 1 if worker.may_have_run else 1 / INNOCENT_LOSSES
        if tasks[0].losses >= ATTEMPTS:
            first = tasks.pop(0)
            first.executions.append(Execution(Outcome.INFRA_ERROR, stderr=text[-STDERR_TAIL:]))
            self._ended.append(first)
        for task in tasks:
            self._requeue(task)

    def _requeue(self, task: Task) -> None:
        """Put a task back among those that wait, before its equals."""
        if task.job.again:
            self._again.appendleft(task)
            return
        bisect.insort_left(self._waiting, task, key=Task.order)

    def _assign(self) -> None:
        """Give each idle worker a job and, while there are plenty, some more to queue."""
        ahead = 0 if self._assign_again() else QUEUE_AHEAD  # else no worker would ever be idle
        for queued in range(ahead + 1):
            for worker in list(self._connections):
                if len(self._waiting) <= (len(self._connections) if queued else 0):
                    break
                if worker.accepts(self._waiting[0], queued):
                    self._begin(worker, self._waiting)

    def _assign_again(self) -> bool:
        """Give jobs in doubt to idle workers: to half of all workers, and at least to one.

        Return whether a job in doubt waits for a worker of this share.
        """
        share = max(1, self.workers // 2)
        running = sum(worker.judges_again for worker in self._connections)
        for worker in list(self._connections):
            if self._again and running < share and worker.accepts(self._again[0], 0):
                self._begin(worker, self._again)
                running += worker.judges_again
        return bool(self._again) and running < share

    def _begin(self, worker: WorkerConnection, waiting: deque[Task]) -> None:
        """Begin the first of the tasks that wait, or replace a worker that should be."""
        if not worker.exhausted():
            task = waiting.popleft()
            self.one_shots += task.is_one_shot
            worker.begin(task)
        elif worker.suspect or not worker.tasks:
            for task in worker.tasks:
                self._requeue(task)
            self._remove(worker)  # the next round starts another

    # ---- communication ----

    def _exchange(self, keep_going: KeepGoing) -> None:
        """Send and receive what is possible now; add tasks that ended to `_ended`."""
        for worker in list(self._connections):
            self._guarded(worker, worker.flush)
        for worker, descriptor in self._connections.items():
            writing = selectors.EVENT_WRITE if worker.unsent else 0
            self._selector.modify(descriptor, selectors.EVENT_READ | writing, worker)
        answered = set()
        for key, _ in self._selector.select(self._timeout()):
            worker = key.data
            answered.add(worker)
            self._guarded(worker, partial(worker.receive, keep_going))
            self._guarded(worker, worker.flush)
            if worker.ready:
                self._failed_starts = 0
        # Only after reading: a host that was busy elsewhere must not blame its workers.
        now = time.monotonic()
        for worker in [w for w in self._connections if w not in answered and w.overdue(now)]:
            self._replace(worker, "no answer in time")

    def _timeout(self) -> float:
        """Return the seconds until the next deadline, at most POLL_S."""
        now = time.monotonic()
        left = (w.deadline - now for w in self._connections if w.deadline is not None)
        return min(max(0.0, min(left, default=POLL_S)), POLL_S)

    def _guarded(self, worker: WorkerConnection, act: Callable[[], list[Task] | None]) -> None:
        """Call an action of a worker unless it is gone already; replace a worker that is lost."""
        if worker not in self._connections:
            return
        try:
            released = act() or []
        except WorkerLost as error:
            released = error.released
            self._replace(worker, str(error))
        else:
            self._register(worker)
        for task in released:
            if task.done:
                self._ended.append(task)
            else:
                self._requeue(task)
