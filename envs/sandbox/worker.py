"""The talk with one worker: which jobs it has, what was sent ahead, what is still to come.

Most programs of a training run fail their first test. So a job begins with a shot: the program and
its first input, for one process. Several can be on their way to a worker, which then never waits
for the host. What passes has its other tests from a process that compiles the program once more:
a job that promises to pass has all of them from there.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field

from envs.sandbox import protocol
from envs.sandbox.base import Execution, Job, KeepGoing, Limits, Outcome
from envs.sandbox.inside.framing import patience_s

# Inputs sent before their results: one at first, two of a promising program, since what is sent
# ahead of a wrong one is run in vain; more with each result, since the worker answers in batches.
LARGEST_WINDOW = 8
WINDOW_BYTES = 1 << 20  # beyond which two are enough
SHOT_BYTES = 1 << 14  # of a program; what compiling it takes is then far below any memory limit
START_S = 30.0  # a worker's time to report READY
SEND_BYTES = 1 << 18  # at a time
GRACE_S = 10.0  # on top of a test's own limits, before its worker counts as stuck


class WorkerLost(RuntimeError):
    """The worker is gone, stuck or talks nonsense; `left` are the tasks that it had done before."""

    def __init__(self, reason: str, left: list[Task] | None = None) -> None:
        super().__init__(reason)
        self.left = left or []


@dataclass(eq=False)
class Task:
    """A job on its way: what has been executed, and how often its worker was lost."""

    index: int
    job: Job
    executions: list[Execution] = field(default_factory=list)
    losses: float = 0
    done: bool = False

    @property
    def is_shot(self) -> bool:
        """Whether it begins with one; where importing takes long, once is enough."""
        inputs, program = self.job.inputs, self.job.program
        served = self.job.promising or (len(inputs) > 1 and "numpy" in program)
        return bool(inputs) and not (self.executions or served or len(program) > SHOT_BYTES)

    @property
    def is_small(self) -> bool:
        """Whether it may wait at a worker."""
        return self.is_shot and len(self.job.inputs[0]) <= WINDOW_BYTES

    def order(self) -> float:
        """Sorts the jobs that may take longest first, so that none of them ends alone."""
        return -len(self.job.inputs) * self.job.limits.cpu_s


class WorkerConnection:
    """One worker with its streams framed. One job at a time, or several shots."""

    def __init__(self, handle: WorkerHandle) -> None:
        self.handle = handle
        self.ready = False
        self.suspect = False  # an out-of-memory kill may have hit more than the test itself
        self.deadline: float | None = None
        self._shots: deque[Task] = deque()  # on their way, in this order
        self._task: Task | None = None
        self._compiled = False  # the present task's program may have run
        self._stale = False  # what comes belongs to a job that is over, until ENDED
        self._decoder = protocol.FrameDecoder()
        self._outbox = bytearray()
        self._sent = 0  # inputs of the task sent so far, dropped ones not counted
        self._stale_limits: list[Limits] = []  # of the job that is over: one input may still run

        self._await_ready()

    def _await_ready(self) -> None:
        if not self.ready and self.deadline is None and self.handle.started():
            self.deadline = time.monotonic() + START_S

    @property
    def tasks(self) -> list[Task]:
        """What it has, the one that is running first."""
        return [self._task] if self._task else list(self._shots)

    @property
    def may_have_run(self) -> bool:
        """Whether the first of its tasks can be what ended the worker."""
        return bool(self._shots) or self._compiled

    def takes(self, task: Task, ahead: int) -> bool:
        """Whether a task may begin, or wait behind at most `ahead` others."""
        if not self.ready or self._task is not None or len(self._shots) > ahead:
            return False
        return not self._shots or task.is_small

    @property
    def unsent(self) -> bool:
        return bool(self._outbox)

    def overdue(self, now: float) -> bool:
        return self.deadline is not None and now > self.deadline

    def exhausted(self) -> bool:
        """True if the worker should go before its next job."""
        return self.suspect or self.handle.worn_out()

    def begin(self, task: Task) -> None:
        """Send a job's program and its first inputs (those not yet executed)."""
        if task.is_shot:
            self._shots.append(task)
            self._post(protocol.encode_shot(task.job))
            if len(self._shots) > 1:
                return
        else:
            self._task, self._sent, self._compiled = task, len(task.executions), False
            self._post(protocol.encode_program(task.job))
            self._post_inputs()
        self._extend()

    def flush(self) -> None:
        """Send what the worker takes now. Raises WorkerLost."""
        while self._outbox:
            try:
                count = self.handle.send(memoryview(bytes(self._outbox[:SEND_BYTES])))
            except OSError as error:
                raise WorkerLost(f"it takes nothing in: {error}") from error
            if count == 0:
                return
            del self._outbox[:count]

    def listen(self, keep_going: KeepGoing) -> list[Task]:
        """Take in what the worker says; return the tasks that it has no more, done or not.

        Raises WorkerLost.
        """
        try:
            data = self.handle.receive()
        except OSError as error:
            raise WorkerLost(f"it cannot be heard: {error}") from error
        self._await_ready()
        if data is None:
            return []
        if not data:
            raise WorkerLost("it ended")
        left = []
        try:
            for frame in self._decoder.feed(data):
                task = self._hear(frame, keep_going)
                left += [task] if task else []
        except protocol.ProtocolError as error:
            raise WorkerLost(str(error), left) from error
        except WorkerLost as error:
            raise WorkerLost(str(error), left) from error
        return left

    def _post(self, data: bytes) -> None:
        self._outbox += data

    def _post_inputs(self) -> None:
        task = self._task
        inputs, done = task.job.inputs, len(task.executions)
        window = min(1 + task.job.promising + 2 * done, LARGEST_WINDOW)
        while self._sent < min(len(inputs), done + window):
            ahead = inputs[done : self._sent]
            if len(ahead) >= 2 and sum(map(len, ahead)) > WINDOW_BYTES:
                break
            self._post(protocol.encode_input(inputs[self._sent]))
            self._sent += 1

    def _extend(self) -> None:
        """Set the hard deadline: the worker has to say something before."""
        limits = [task.job.limits for task in self.tasks[:1]] + self._stale_limits
        if not limits:
            self.deadline = None
            return
        slowest = max(patience_s(limit.wall_s) + 2 * limit.cpu_s for limit in limits)
        self.deadline = time.monotonic() + slowest + GRACE_S

    def _hear(self, frame: protocol.Frame, keep_going: KeepGoing) -> Task | None:
        """The task that the worker has no more after this frame."""
        if frame.kind == protocol.READY:
            self.ready, self.deadline = True, None
        elif self._stale:
            if frame.kind == protocol.ENDED:
                self._stale, self._stale_limits = False, []
            if self.tasks:
                self._extend()
        elif not self.tasks:
            raise WorkerLost(f"a frame of kind {frame.kind} that nobody asked for")
        elif frame.kind == protocol.COMPILED:
            return self._on_compiled(protocol.execution(frame))
        elif frame.kind == protocol.RESULT:
            return self._on_executed(protocol.execution(frame), keep_going)
        return None

    def _on_compiled(self, execution: Execution) -> Task | None:
        self._compiled = True
        if execution.outcome is not Outcome.FINISHED:
            self.tasks[0].executions.append(execution)
            return self._end(done=True)
        self._extend()
        return None if self._task.job.inputs else self._end(done=True)

    def _on_executed(self, execution: Execution, keep_going: KeepGoing) -> Task | None:
        if execution.outcome is Outcome.INFRA_ERROR:
            raise WorkerLost(f"it could not run a test: {execution.stderr}")
        task = self.tasks[0]
        out_of_memory = execution.outcome is Outcome.MEMORY_LIMIT
        self.suspect |= out_of_memory and execution.exit_code == -9
        task.executions.append(execution)
        number = len(task.executions)
        more = keep_going(task.index, number - 1, execution)
        if not more or number >= len(task.job.inputs):
            return self._end(done=True)
        if self._task is None:
            return self._end(done=False)
        if execution.outcome is not Outcome.FINISHED:
            self._sent = number  # the worker dropped what was sent ahead
            self._post(protocol.encode(protocol.RESUME))
        self._post_inputs()
        self._extend()
        return None

    def _end(self, done: bool) -> Task:
        """Close the first job; ENDED then tells when what a worker says is new."""
        if self._task is None:
            task = self._shots.popleft()
        else:
            task, self._task = self._task, None
            self._post(protocol.encode(protocol.END))
            self._stale, self._stale_limits = True, [task.job.limits]
        task.done = done
        if self.tasks:
            self._extend()
        else:
            self.deadline = None
        return task


# What a backend provides: one worker as a pair of byte streams, and a way to end it.


class WorkerHandle(ABC):
    """One worker as the pool sees it.

    The pool does the framing, the deadlines and the restarts. Streams must be non-blocking: one
    thread serves all workers through a selector.
    """

    @abstractmethod
    def start(self) -> None:
        """Begin to start the worker and return; its READY frame follows on the stream.

        Called once. A SandboxError, here or in `receive`, is final: it ends the pool's run.
        """

    def started(self) -> bool:
        """False as long as it is not the worker that is waited for, but what it will run in."""
        return True

    @abstractmethod
    def fileno(self) -> int:
        """The descriptor that becomes readable when the worker said something or died.

        It may be another one after a call of `receive`.
        """

    @abstractmethod
    def send(self, data: memoryview) -> int:
        """Write what can be written now; return the number of bytes, 0 if none could be.

        Raises OSError when the worker is gone.
        """

    @abstractmethod
    def receive(self) -> bytes | None:
        """The bytes that can be read now; None if there are none yet, b"" when it is gone."""

    @abstractmethod
    def kill(self) -> None:
        """End the worker at once, with all that runs in it, and free its resources.

        Safe to call twice, and on a worker that never started.
        """

    def worn_out(self) -> bool:
        """True when the worker should be replaced before its next job (asked between jobs)."""
        return False

    def cause_of_death(self) -> str:
        """What is known of why the worker ended, for the log; "" if nothing."""
        return ""
