"""The connection to one worker: its jobs, what was sent ahead, and its deadline.

Most programs of a training run fail their first test. So a job begins as one-shot: the program and
its first input, for one process. Several one-shot jobs can be queued at a worker, which then never
waits for the host. A program that passes runs its other tests from a process that compiles it once
more; a promising job runs all its tests from there.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field

from envs.sandbox import protocol
from envs.sandbox.base import Execution, Job, KeepGoing, Limits, Outcome
from envs.sandbox.inside.framing import END, RESUME, patience_s

# Inputs sent before their results. It is one at first, since what is sent ahead of a wrong answer
# runs in vain, and two for a promising program. It grows with each result, since the worker answers
# in batches.
LARGEST_WINDOW = 8
WINDOW_BYTES = 1 << 20  # beyond which two inputs are enough
ONE_SHOT_CHARS = 1 << 14  # of a program; compiling it takes far less than any memory limit
START_S = 30.0  # a worker's time to report READY
SEND_BYTES = 1 << 18  # at a time
GRACE_S = 10.0  # on top of a test's own limits, before its worker counts as stuck


class WorkerLost(RuntimeError):
    """The worker is gone, stuck or sends no frames; `released` are tasks it had done before."""

    def __init__(self, reason: str, released: list[Task] | None = None) -> None:
        super().__init__(reason)
        self.released = released or []


@dataclass(eq=False)
class Task:
    """A job in progress: its executions so far, and how often its worker was lost."""

    index: int
    job: Job
    executions: list[Execution] = field(default_factory=list)
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

    @property
    def may_queue(self) -> bool:
        """Whether it may wait at a busy worker."""
        small = self.is_one_shot and len(self.job.inputs[0]) <= WINDOW_BYTES
        return small and not self.job.again

    def order(self) -> float:
        """Return a sort key that puts the longest jobs first, so that none of them ends alone."""
        return -len(self.job.inputs) * self.job.limits.cpu_s


class WorkerHandle(ABC):
    """One worker of a backend: a pair of byte streams, and a way to end it.

    The pool does the framing, the deadlines and the restarts. Streams must be non-blocking: one
    thread serves all workers through a selector.
    """

    @abstractmethod
    def start(self) -> None:
        """Begin to start the worker and return; its READY frame follows on the stream.

        Called once. A SandboxError, here or in `receive`, is final: it ends the pool's run.
        """

    def started(self) -> bool:
        """Return False while not the worker, but its environment (a container) is starting."""
        return True

    @abstractmethod
    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the worker has written or died.

        It may change with a call of `receive`.
        """

    @abstractmethod
    def send(self, data: memoryview) -> int:
        """Write what can be written now; return the number of bytes, 0 if none could be.

        Raises OSError when the worker is gone.
        """

    @abstractmethod
    def receive(self) -> bytes | None:
        """Return the bytes that can be read now; None if there are none, b"" if it is gone."""

    @abstractmethod
    def kill(self) -> None:
        """End the worker at once, with all that runs in it, and free its resources.

        Safe to call twice, and on a worker that never started.
        """

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
        self.suspect = False  # an out-of-memory kill may have hit more than the test itself
        self.deadline: float | None = None
        self._one_shots: deque[Task] = deque()  # sent, in this order
        self._task: Task | None = None
        self._compiled = False  # the current task's program may have run
        self._stale = False  # frames belong to a job that is over, until ENDED
        self._stale_limits: list[Limits] = []  # of the job that is over: one input may still run
        self._decoder = protocol.FrameDecoder()
        self._outbox = bytearray()
        self._sent = 0  # inputs of the task sent so far, dropped ones not counted
        self._await_ready()

    def _await_ready(self) -> None:
        if not self.ready and self.deadline is None and self.handle.started():
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
        return not self._one_shots or (task.may_queue and not self.judges_again)

    @property
    def judges_again(self) -> bool:
        """Whether it runs a job whose first run was in doubt."""
        return any(task.job.again for task in self.tasks)

    @property
    def unsent(self) -> bool:
        return bool(self._outbox)

    def overdue(self, now: float) -> bool:
        return self.deadline is not None and now > self.deadline

    def exhausted(self) -> bool:
        """Return whether the worker should be replaced before its next job."""
        return self.suspect or self.handle.worn_out()

    def begin(self, task: Task) -> None:
        """Send a job's program and its first inputs (those not yet executed)."""
        if task.is_one_shot:
            self._one_shots.append(task)
            self._outbox += protocol.encode_one_shot(task.job)
            if len(self._one_shots) > 1:
                return
        else:
            self._task, self._sent, self._compiled = task, len(task.executions), False
            self._outbox += protocol.encode_program(task.job)
            self._post_inputs(task)
        self._extend_deadline()

    def flush(self) -> None:
        """Send what the worker takes now. Raises WorkerLost."""
        while self._outbox:
            try:
                count = self.handle.send(memoryview(bytes(self._outbox[:SEND_BYTES])))
            except OSError as error:
                raise WorkerLost(f"sending failed: {error}") from error
            if count == 0:
                return
            del self._outbox[:count]

    def receive(self, keep_going: KeepGoing) -> list[Task]:
        """Process what the worker has sent; return the tasks that it released, done or not.

        Raises WorkerLost.
        """
        try:
            data = self.handle.receive()
        except OSError as error:
            raise WorkerLost(f"receiving failed: {error}") from error
        self._await_ready()
        if data is None:
            return []
        if not data:
            raise WorkerLost("its process ended")
        released = []
        try:
            for frame in self._decoder.feed(data):
                task = self._process(frame, keep_going)
                released += [task] if task else []
        except (protocol.ProtocolError, WorkerLost) as error:
            raise WorkerLost(str(error), released) from error
        return released

    def _post_inputs(self, task: Task) -> None:
        inputs, done = task.job.inputs, len(task.executions)
        window = min(1 + task.job.promising + 2 * done, LARGEST_WINDOW)
        while self._sent < min(len(inputs), done + window):
            ahead = inputs[done : self._sent]
            if len(ahead) >= 2 and sum(map(len, ahead)) > WINDOW_BYTES:
                break
            self._outbox += protocol.encode_input(inputs[self._sent])
            self._sent += 1

    def _extend_deadline(self) -> None:
        """Set the time by which the worker has to send something."""
        limits = [task.job.limits for task in self.tasks[:1]] + self._stale_limits
        if not limits:
            self.deadline = None
            return
        slowest = max(patience_s(limit.wall_s) + 2 * limit.cpu_s for limit in limits)
        self.deadline = time.monotonic() + slowest + GRACE_S

    def _process(self, frame: protocol.Frame, keep_going: KeepGoing) -> Task | None:
        """Process a frame; return the task that the worker released with it."""
        if frame.kind == protocol.READY:
            self.ready, self.deadline = True, None
        elif self._stale:
            if frame.kind == protocol.ENDED:
                self._stale, self._stale_limits = False, []
            if self.tasks:
                self._extend_deadline()
        elif not self.tasks:
            raise WorkerLost(f"an unexpected frame of kind {frame.kind}")
        elif frame.kind == protocol.COMPILED:
            return self._on_compiled(protocol.execution(frame))
        elif frame.kind == protocol.RESULT:
            return self._on_executed(protocol.execution(frame), keep_going)
        return None

    def _on_compiled(self, execution: Execution) -> Task | None:
        self._compiled = True
        task = self.tasks[0]
        if execution.outcome is not Outcome.FINISHED:
            task.executions.append(execution)
            return self._release(done=True)
        self._extend_deadline()
        return None if task.job.inputs else self._release(done=True)

    def _on_executed(self, execution: Execution, keep_going: KeepGoing) -> Task | None:
        if execution.outcome is Outcome.INFRA_ERROR:
            raise WorkerLost(f"it could not run a test: {execution.stderr}")
        task = self.tasks[0]
        out_of_memory = execution.outcome is Outcome.MEMORY_LIMIT
        self.suspect |= out_of_memory and execution.exit_code == -9
        task.executions.append(execution)
        done = len(task.executions)
        more = keep_going(task.index, done - 1, execution)
        if not more or done >= len(task.job.inputs):
            return self._release(done=True)
        if self._task is None:
            return self._release(done=False)
        if execution.outcome is not Outcome.FINISHED:
            self._sent = done  # the worker dropped what was sent ahead
            self._outbox += protocol.encode(RESUME)
        self._post_inputs(task)
        self._extend_deadline()
        return None

    def _release(self, done: bool) -> Task:
        """End the first task. For a job with a runner, frames are stale until its ENDED."""
        if self._task is None:
            task = self._one_shots.popleft()
        else:
            task, self._task = self._task, None
            self._outbox += protocol.encode(END)
            self._stale, self._stale_limits = True, [task.job.limits]
        task.done = done
        if self.tasks:
            self._extend_deadline()
        else:
            self.deadline = None
        return task
