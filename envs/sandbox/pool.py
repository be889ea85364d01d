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

from envs.sandbox.base import Execution, Job, KeepGoing, Outcome, Sandbox, SandboxError
from envs.sandbox.inside.framing import STDERR_TAIL
from envs.sandbox.protocol import Task, WorkerConnection, WorkerHandle, WorkerLost
from envs.sandbox.python_runtime import versions

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
        tasks = [Task(index, job) for index, job in enumerate(jobs)]
        self._waiting, self._ended, left = deque(sorted(tasks, key=Task.order)), [], len(jobs)
        self._running, self._abandoned = True, False
        try:
            while left:
                if self._abandoned:
                    raise SandboxError("the job in this sandbox was abandoned")
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
        bisect.insort_left(self._waiting, task, key=Task.order)

    def _assign(self) -> None:
        """Give each idle worker a job and, while there are plenty, some more to queue."""
        for queued in range(QUEUE_AHEAD + 1):
            for worker in list(self._connections):
                if len(self._waiting) <= (len(self._connections) if queued else 0):
                    break
                if not worker.accepts(self._waiting[0], queued):
                    continue
                if not (worker.suspect or worker.handle.worn_out()):
                    task = self._waiting.popleft()
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
            self._communicate(worker)
        for worker, descriptor in self._connections.items():
            writing = selectors.EVENT_WRITE if worker.outbox else 0
            self._selector.modify(descriptor, selectors.EVENT_READ | writing, worker)
        now = time.monotonic()
        left = (w.deadline - now for w in self._connections if w.deadline is not None)
        answered = set()
        for key, _ in self._selector.select(min(max(0.0, min(left, default=POLL_S)), POLL_S)):
            worker = key.data
            answered.add(worker)
            self._communicate(worker, keep_going)
            if worker.ready:
                self._failed_starts = 0
        # Only after reading: a host that was busy elsewhere must not blame its workers.
        now = time.monotonic()
        for worker in [w for w in self._connections if w not in answered]:
            if worker.deadline is not None and now > worker.deadline:
                self._replace(worker, "no answer in time")

    def _communicate(self, worker: WorkerConnection, keep_going: KeepGoing | None = None) -> None:
        """Send to a worker, with `keep_going` receive first; replace it if it is lost."""
        released = []
        try:
            if keep_going is not None:
                released = worker.receive(keep_going)
            worker.flush()
            self._register(worker)
        except WorkerLost as error:
            released += error.released
            self._replace(worker, str(error))
        for task in released:
            if task.done:
                self._ended.append(task)
            else:
                self._requeue(task)
