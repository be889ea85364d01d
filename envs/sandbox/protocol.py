"""The host's end of the conversation with one worker: frames, jobs, what was sent ahead, deadline.

The format of a frame is defined in `inside/framing.py`, which must stand alone inside the sandbox.

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

import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field

from envs.sandbox.base import Execution, Job, KeepGoing, Limits, Outcome
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
    join_body,
    patience_s,
    split_body,
)

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


class ProtocolError(RuntimeError):
    """A worker sent something that is not a frame, so it is replaced."""


class WorkerLost(RuntimeError):
    """The worker is gone, stuck or sends no frames; `released` are tasks it had done before."""

    def __init__(self, reason: str, released: list[Task] | None = None) -> None:
        super().__init__(reason)
        self.released = released or []


# ---- frames ----


class Splitter:
    """Splits a stream of bytes, which may arrive in any pieces, into (kind, payload).

    `header`: the layout of a kind and a payload's length, in front of each payload.
    """

    def __init__(self, header: struct.Struct = HEADER) -> None:
        self._header, self._buffer = header, bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Add received bytes; return what is now complete.

        Raises ProtocolError on a length above MAX_PAYLOAD_BYTES.
        """
        self._buffer += data
        found, start, size = [], 0, self._header.size
        while len(self._buffer) - start >= size:
            kind, length = self._header.unpack_from(self._buffer, start)
            if length > MAX_PAYLOAD_BYTES:
                raise ProtocolError(f"not a frame: kind {kind}, length {length}")
            end = start + size + length
            if len(self._buffer) < end:
                break
            found.append((kind, bytes(self._buffer[start + size : end])))
            start = end
        del self._buffer[:start]
        return found


def execution_of(payload: bytes) -> Execution:
    """Return the Execution in a RESULT or an unsuccessful COMPILED frame.

    Raises ProtocolError if the frame is malformed.
    """
    try:
        header, stdout = split_body(payload)
        header["outcome"] = Outcome(header["outcome"])
        return Execution(stdout=stdout, **header)
    except (KeyError, ValueError, TypeError) as error:
        raise ProtocolError(f"a malformed result: {error!r}") from error


def encode(kind: int, payload: bytes = b"") -> bytes:
    """Return one frame as bytes."""
    return HEADER.pack(kind, len(payload)) + payload


def encode_program(job: Job, kind: int = PROGRAM) -> bytes:
    """Return the PROGRAM frame of a job: its limits and its source, none of its inputs."""
    limits = job.limits
    header = {
        "cpu_s": limits.cpu_s,
        "wall_s": limits.wall_s,
        "memory_mb": limits.memory_mb,
        "output_mb": limits.output_mb,
        "fn_name": job.fn_name,
    }
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
        self.suspect = False  # an out-of-memory kill may have hit more than the test itself
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
        except (ProtocolError, WorkerLost) as error:
            raise WorkerLost(str(error), released) from error
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
