"""The talk with one worker: which job it has, what was sent ahead, what is still to come."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from envs.sandbox import protocol
from envs.sandbox.base import Execution, Job, KeepGoing, Limits, Outcome
from envs.sandbox.handle import WorkerHandle
from envs.sandbox.inside.channel import patience_s

# Inputs sent before their results. Few at first, since most wrong programs fail early and what was
# sent ahead is then run in vain; more with each result, since the worker answers in batches.
FIRST_WINDOW, LARGEST_WINDOW = 2, 8
WINDOW_BYTES = 1 << 20  # beyond which two are enough
START_S = 30.0  # a worker's time to report READY
SEND_BYTES = 1 << 18  # at a time
GRACE_S = 10.0  # on top of a test's own limits, before its worker counts as stuck


class WorkerLost(RuntimeError):
    """The worker is gone, stuck or talks nonsense."""


@dataclass(eq=False)
class Task:
    """A job on its way: what has been executed, and how often its worker was lost."""

    index: int
    job: Job
    executions: list[Execution] = field(default_factory=list)
    losses: float = 0

    def order(self) -> float:
        """Sorts the jobs that may take longest first, so that none of them ends alone."""
        return -len(self.job.inputs) * self.job.limits.cpu_s


class Conversation:
    """One worker with its streams framed. At most one job at a time."""

    def __init__(self, handle: WorkerHandle) -> None:
        self.handle = handle
        self.task: Task | None = None
        self.ready = False
        self.stale = False  # what comes belongs to a job that is over, until ENDED
        self.deadline: float | None = None
        self.compiled = False  # the present task's program may have run
        self._decoder = protocol.FrameDecoder()
        self._outbox = bytearray()
        self._sent = 0  # inputs of the task sent so far, dropped ones not counted
        self._suspect = False
        self._stale_limits: list[Limits] = []  # of the job that is over: one input may still run

        self._await_ready()

    def _await_ready(self) -> None:
        if not self.ready and self.deadline is None and self.handle.started():
            self.deadline = time.monotonic() + START_S

    @property
    def idle(self) -> bool:
        return self.ready and self.task is None

    @property
    def unsent(self) -> bool:
        return bool(self._outbox)

    def overdue(self, now: float) -> bool:
        return self.deadline is not None and now > self.deadline

    def exhausted(self) -> bool:
        """True if the worker should go before its next job."""
        return self._suspect or self.handle.worn_out()

    def begin(self, task: Task) -> None:
        """Send a job's program and its first inputs (those not yet executed)."""
        self.task, self._sent, self.compiled = task, len(task.executions), False
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

    def listen(self, keep_going: KeepGoing) -> Task | None:
        """Take in what the worker says; return the task if it ended.

        Raises WorkerLost.
        """
        try:
            data = self.handle.receive()
        except OSError as error:
            raise WorkerLost(f"it cannot be heard: {error}") from error
        self._await_ready()
        if data is None:
            return None
        if not data:
            raise WorkerLost("it ended")
        ended = None
        try:
            for frame in self._decoder.feed(data):
                ended = self._hear(frame, keep_going) or ended
        except protocol.ProtocolError as error:
            raise WorkerLost(str(error)) from error
        return ended

    def _post(self, data: bytes) -> None:
        self._outbox += data

    def _post_inputs(self) -> None:
        task = self.task
        inputs, done = task.job.inputs, len(task.executions)
        window = min(FIRST_WINDOW + done, LARGEST_WINDOW)
        while self._sent < min(len(inputs), done + window):
            ahead = inputs[done : self._sent]
            if len(ahead) >= FIRST_WINDOW and sum(map(len, ahead)) > WINDOW_BYTES:
                break
            self._post(protocol.encode_input(inputs[self._sent]))
            self._sent += 1

    def _extend(self) -> None:
        """Set the hard deadline: the worker has to say something before."""
        limits = [self.task.job.limits, *self._stale_limits]
        slowest = max(patience_s(limit.wall_s) + limit.cpu_s for limit in limits)
        self.deadline = time.monotonic() + slowest + GRACE_S

    def _hear(self, frame: protocol.Frame, keep_going: KeepGoing) -> Task | None:
        if frame.kind == protocol.READY:
            self.ready, self.deadline = True, None
        elif self.stale:
            if frame.kind == protocol.ENDED:
                self.stale, self._stale_limits = False, []
            if self.task is not None:
                self._extend()
        elif self.task is None:
            raise WorkerLost(f"a frame of kind {frame.kind} that nobody asked for")
        elif frame.kind == protocol.COMPILED:
            return self._compiled(protocol.execution(frame))
        elif frame.kind == protocol.RESULT:
            return self._executed(protocol.execution(frame), keep_going)
        return None

    def _compiled(self, execution: Execution) -> Task | None:
        self._extend()
        self.compiled = True
        if execution.outcome is not Outcome.FINISHED:
            self.task.executions.append(execution)
            return self._end()
        return None if self.task.job.inputs else self._end()

    def _executed(self, execution: Execution, keep_going: KeepGoing) -> Task | None:
        if execution.outcome is Outcome.INFRA_ERROR:
            raise WorkerLost(f"it could not run a test: {execution.stderr}")
        task = self.task
        # An out-of-memory kill may have hit more than the test itself.
        out_of_memory = execution.outcome is Outcome.MEMORY_LIMIT
        self._suspect |= out_of_memory and execution.exit_code == -9
        task.executions.append(execution)
        number = len(task.executions)
        more = keep_going(task.index, number - 1, execution)
        if not more or number >= len(task.job.inputs):
            return self._end()
        if execution.outcome is not Outcome.FINISHED:
            self._sent = number  # the worker dropped what was sent ahead
            self._post(protocol.encode(protocol.RESUME))
        self._post_inputs()
        self._extend()
        return None

    def _end(self) -> Task:
        """Close the job on both sides; the worker's ENDED tells when what it says is new."""
        task, self.task = self.task, None
        self._post(protocol.encode(protocol.END))
        self.stale, self.deadline = True, None
        self._stale_limits = [task.job.limits]
        return task
