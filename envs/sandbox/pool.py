"""The host's end: run jobs on a set of workers, and replace workers that die or hang.

One thread serves all workers through a selector. Nothing is started in the background, so closing
the iterator or an interrupt leaves no thread behind. A backend provides the worker handles. The
format of a frame is defined in `inside/framing.py`, which must stand alone inside the sandbox.

Host to worker:
- PROGRAM (JSON header and source), then one INPUT per test (raw stdin bytes), then END;
- or ONE_SHOT (as PROGRAM) and one INPUT, followed by anything;
- RESUME after a test that did not finish.

Worker to host:
- READY once;
- for each PROGRAM one COMPILED, one RESULT per test in order, one ENDED;
- for each ONE_SHOT one RESULT, or one COMPILED that says why there is no program.

After a RESULT or COMPILED that is not FINISHED, the worker drops a PROGRAM's further INPUTs until
it reads RESUME or END. So inputs that were sent ahead cost nothing when the host stops early.

Most programs of a training run fail their first test. So a job begins as one-shot: the program and
its first input, for one process. Several one-shot jobs can be queued at a worker, which then never
waits for the host. A program that passes runs its other tests from a process that compiles it once
more; a promising job runs all its tests from there.
"""

from __future__ import annotations

import bisect
import logging
import os
import selectors
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

from envs.sandbox.base import Execution, Job, KeepGoing, Limits, Outcome, Sandbox, SandboxError
from envs.sandbox.inside.framing import (
    COMPILED,
    END,
    ENDED,
    HEADER,
    INPUT,
    ONE_SHOT,
    PROGRAM,
    READY,
    RESULT,
    RESUME,
    STDERR_TAIL,
    join_body,
    patience_s,
    split_body,
)
from envs.sandbox.python_runtime import versions

MAX_PAYLOAD_BYTES = 1 << 30
# Inputs sent before their results. It is one at first, since what is sent ahead of a wrong answer
# runs in vain, and two for a promising program. It grows with each result, since the worker answers
# in batches.
LARGEST_WINDOW = 8
WINDOW_BYTES = 1 << 20  # beyond which two inputs are enough
ONE_SHOT_CHARS = 1 << 14  # of a program; compiling it takes far less than any memory limit
START_S = 30.0  # a worker's time to report READY
SEND_BYTES, RECEIVE_BYTES = 1 << 18, 1 << 20  # at a time
GRACE_S = 10.0  # on top of a test's own limits, before its worker counts as stuck


class WorkerLost(RuntimeError):
    """The worker is gone, stuck or sends no frames; `released` are tasks it had done before."""

    released: Sequence[Task] = ()


# ---- frames ----


class Splitter:
    """Splits a stream of bytes, which may arrive in any pieces, into (kind, payload).

    `header`: the layout of a kind and a payload's length, in front of each payload.
    """

    def __init__(self, header: struct.Struct = HEADER) -> None:
        self._header, self._buffer = header, bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Add received bytes; return what is now complete.

        Raises WorkerLost on a length above MAX_PAYLOAD_BYTES.
        """
        self._buffer += data
        found, start, size = [], 0, self._header.size
        while len(self._buffer) - start >= size:
            kind, length = self._header.unpack_from(self._buffer, start)
            if length > MAX_PAYLOAD_BYTES:
                raise WorkerLost(f"not a frame: kind {kind}, length {length}")
            end = start + size + length
            if len(self._buffer) < end:
                break
            found.append((kind, bytes(self._buffer[start + size : end])))
            start = end
        del self._buffer[:start]
        return found


def execution_of(payload: bytes) -> Execution:
    """Return the Execution in a RESULT or an unsuccessful COMPILED frame.

    Raises WorkerLost if the frame is malformed.
    """
    try:
        header, stdout = split_body(payload)
        header["outcome"] = Outcome(header["outcome"])
        return Execution(stdout=stdout, **header)
    except (KeyError, ValueError, TypeError) as error:
        raise WorkerLost(f"a malformed result: {error!r}") from error


def encode(kind: int, payload: bytes = b"") -> bytes:
    """Return one frame as bytes."""
    return HEADER.pack(kind, len(payload)) + payload


def encode_program(job: Job, kind: int = PROGRAM) -> bytes:
    """Return the PROGRAM frame of a job: its limits and its source, none of its inputs."""
    header = asdict(job.limits) | {"fn_name": job.fn_name}
    return encode(kind, join_body(header, job.program.encode("utf-8", "surrogatepass")))


def encode_input(content: str | bytes) -> bytes:
    """Return the INPUT frame of one test."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    return encode(INPUT, content)


# ---- tasks and workers ----


@dataclass(eq=False)
class Task:
    """A job in progress: its executions so far, and how often its worker was lost."""

    index: int
    job: Job
    executions: list[Execution] = field(default_factory=list)
    compile_s: float = 0.0  # CPU time of compiling that no execution is charged with yet
    losses: float = 0
    done: bool = False

    @property
    def is_one_shot(self) -> bool:
        """Whether it begins with a process for its first input alone.

        A program that imports numpy does not, since importing it once is enough.
        """
        inputs, program = self.job.inputs, self.job.program
        served = self.job.promising or (len(inputs) > 1 and "numpy" in program)
        return bool(inputs) and not (self.executions or served or len(program) > ONE_SHOT_CHARS)

    def order(self) -> float:
        """Return a sort key that puts the longest jobs first, so that none of them ends alone."""
        return -len(self.job.inputs) * self.job.limits.cpu_s


class WorkerHandle(ABC):
    """One worker of a backend: a non-blocking socket to it, and a way to end it.

    The pool does the framing, the deadlines and the restarts: one thread serves all workers through
    a selector.
    """

    socket: socket.socket | None = None  # once the worker, or its environment, has started

    @abstractmethod
    def start(self) -> None:
        """Begin to start the worker and return; its READY frame follows on the stream.

        Called once. A SandboxError, here or in `receive`, is final: it ends the pool's run.
        """

    @abstractmethod
    def kill(self) -> None:
        """End the worker at once, with all that runs in it, and free its resources.

        Safe to call twice, and on a worker that never started.
        """

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the worker has written or died.

        It may change with a call of `receive`.
        """
        assert self.socket is not None, "the worker was not started"
        return self.socket.fileno()

    def send(self, data: memoryview) -> int:
        """Write what can be written now; return the number of bytes, 0 if none could be.

        Raises OSError when the worker is gone.
        """
        try:
            return self.socket.send(data) if self.socket else 0
        except BlockingIOError:
            return 0

    def receive(self) -> bytes | None:
        """Return the bytes that can be read now; None if there are none, b"" if it is gone."""
        try:
            return self.socket.recv(RECEIVE_BYTES) if self.socket else None
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def worn_out(self) -> bool:
        """Return whether to replace the worker before its next job; called between jobs."""
        return False

    def cause_of_death(self) -> str:
        """Return why the worker ended, for the log; "" if that is unknown."""
        return ""


class WorkerConnection:
    """One worker with its streams framed. It has one job at a time, or several one-shot jobs."""

    def __init__(self, handle: WorkerHandle) -> None:
        self.handle = handle
        self.ready = False
        self.suspect = False  # a kill from outside may have hit more than the test itself
        self.deadline: float | None = None
        self.outbox = bytearray()
        self._one_shots: deque[Task] = deque()  # sent, in this order
        self._task: Task | None = None
        self._compiled = False  # the current task's program may have run
        self._stale_limits: list[Limits] = []  # frames until ENDED are of a job that is over
        self._decoder = Splitter()
        self._sent = 0  # inputs of the task sent so far, dropped ones not counted
        self._await_ready()

    def _await_ready(self) -> None:
        if not self.ready and self.deadline is None and self.handle.socket is not None:
            self.deadline = time.monotonic() + START_S

    @property
    def tasks(self) -> list[Task]:
        """Its tasks, the running one first."""
        return [self._task] if self._task else list(self._one_shots)

    @property
    def may_have_run(self) -> bool:
        """Whether the first of its tasks can have ended the worker."""
        return bool(self._one_shots) or self._compiled

    def accepts(self, task: Task, queued: int) -> bool:
        """Return whether a task may begin, or wait behind at most `queued` others."""
        if not self.ready or self._task is not None or len(self._one_shots) > queued:
            return False
        small = task.is_one_shot and len(task.job.inputs[0]) <= WINDOW_BYTES
        return not self._one_shots or small

    def begin(self, task: Task) -> None:
        """Send a job's program and its first inputs (those not yet executed)."""
        if task.is_one_shot:
            self._one_shots.append(task)
            self.outbox += encode_program(task.job, ONE_SHOT) + encode_input(task.job.inputs[0])
            if len(self._one_shots) > 1:
                return
        else:
            self._task, self._sent, self._compiled = task, len(task.executions), False
            self.outbox += encode_program(task.job)
            self._post_inputs(task)
        self._extend_deadline()

    def flush(self) -> None:
        """Send what the worker takes now. Raises WorkerLost."""
        while self.outbox:
            try:
                count = self.handle.send(memoryview(bytes(self.outbox[:SEND_BYTES])))
            except OSError as error:
                raise WorkerLost(f"sending failed: {error}") from error
            if count == 0:
                return
            del self.outbox[:count]

    def receive(self, keep_going: KeepGoing) -> list[Task]:
        """Process what the worker has sent; return the tasks that it released, done or not.

        Raises WorkerLost.
        """
        data = self.handle.receive()
        self._await_ready()
        if data is None:
            return []
        if not data:
            raise WorkerLost("its process ended")
        released = []
        try:
            for kind, payload in self._decoder.feed(data):
                task = self._process(kind, payload, keep_going)
                released += [task] if task else []
        except WorkerLost as error:
            error.released = released
            raise
        return released

    def _post_inputs(self, task: Task) -> None:
        inputs, done = task.job.inputs, len(task.executions)
        window = min(1 + task.job.promising + 2 * done, LARGEST_WINDOW)
        while self._sent < min(len(inputs), done + window):
            ahead = inputs[done : self._sent]
            if len(ahead) >= 2 and sum(map(len, ahead)) > WINDOW_BYTES:
                break
            self.outbox += encode_input(inputs[self._sent])
            self._sent += 1

    def _extend_deadline(self) -> None:
        """Set the time by which the worker has to send something.

        One input of a job that is over may still run, since it was sent ahead.
        """
        limits = [task.job.limits for task in self.tasks[:1]] + self._stale_limits
        if not self.tasks:
            self.deadline = None
            return
        slowest = max(patience_s(limit.wall_s) + 2 * limit.cpu_s for limit in limits)
        self.deadline = time.monotonic() + slowest + GRACE_S

    def _process(self, kind: int, payload: bytes, keep_going: KeepGoing) -> Task | None:
        """Process a frame; return the task that the worker released with it."""
        if kind == READY:
            self.ready, self.deadline = True, None
        elif self._stale_limits and kind in (COMPILED, RESULT, ENDED):
            if kind == ENDED:
                self._stale_limits = []
            self._extend_deadline()
        elif not self.tasks or kind not in (COMPILED, RESULT):
            raise WorkerLost(f"an unexpected frame of kind {kind}")
        elif kind == COMPILED:
            return self._on_compiled(execution_of(payload))
        else:
            return self._on_executed(execution_of(payload), keep_going)
        return None

    def _on_compiled(self, execution: Execution) -> Task | None:
        self._compiled = True
        task = self.tasks[0]
        if execution.outcome is not Outcome.FINISHED:
            task.executions.append(execution)
            return self._release(done=True)
        task.compile_s += execution.cpu_s
        self._extend_deadline()
        return None if task.job.inputs else self._release(done=True)

    def _on_executed(self, execution: Execution, keep_going: KeepGoing) -> Task | None:
        if execution.outcome is Outcome.INFRA_ERROR:
            raise WorkerLost(f"it could not run a test: {execution.stderr}")
        task = self.tasks[0]
        out_of_memory = execution.outcome is Outcome.MEMORY_LIMIT
        self.suspect |= execution.killed or (out_of_memory and execution.exit_code == -9)
        execution.compile_s += task.compile_s
        task.compile_s = 0.0
        task.executions.append(execution)
        done = len(task.executions)
        more = keep_going(task.index, done - 1, execution)
        if not more or done >= len(task.job.inputs):
            return self._release(done=True)
        if self._task is None:
            return self._release(done=False)
        if execution.outcome is not Outcome.FINISHED:
            self._sent = done  # the worker dropped what was sent ahead
            self.outbox += encode(RESUME)
        self._post_inputs(task)
        self._extend_deadline()
        return None

    def _release(self, done: bool) -> Task:
        """End the first task. For a job with a runner, frames are stale until its ENDED."""
        if self._task is None:
            task = self._one_shots.popleft()
        else:
            task, self._task = self._task, None
            self.outbox += encode(END)
            self._stale_limits = [task.job.limits]
        task.done = done
        self._extend_deadline()
        return task


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
