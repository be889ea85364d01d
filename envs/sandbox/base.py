"""What a sandbox is: programs and inputs go in, what they did comes out.

A sandbox knows no problem and no expected output, so that no program can find one in it; verdicts
are decided outside, by `envs.judge.judge`. Backends: `docker.py`, `embedded.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How one execution ended. FINISHED: by itself, with exit code 0, within all limits."""

    FINISHED = "FINISHED"
    TIME_LIMIT = "TIME_LIMIT"
    MEMORY_LIMIT = "MEMORY_LIMIT"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    SYNTAX_ERROR = "SYNTAX_ERROR"
    STARVED = "STARVED"  # it got no core for so long that nothing can be said of it
    INFRA_ERROR = "INFRA_ERROR"


@dataclass(frozen=True, slots=True)
class Limits:
    """Per test. CPU time is what is judged; wall time is a wider net for programs that sleep.

    Time that a test spends waiting for a core does not count towards `wall_s`, where the kernel
    tells of it.
    """

    cpu_s: float = 2.0
    wall_s: float = 10.0
    memory_mb: int = 256
    output_mb: int = 16


@dataclass(frozen=True, slots=True)
class Job:
    """One program and the inputs to run it on, in this order, each in a fresh process."""

    program: str
    inputs: tuple[str, ...]  # stdin; with `fn_name`, the JSON text of the argument list
    limits: Limits = Limits()
    fn_name: str | None = None  # stdout is then the JSON text of what the function returned
    promising: bool = False  # it will likely run on more than its first input; changes costs alone


@dataclass(slots=True)
class Execution:
    """One program's run on one input.

    All executions of a job are kept until it ends: whoever has compared a `stdout` empties it.
    """

    outcome: Outcome
    stdout: bytes = b""
    stderr: str = ""  # the tail, at most 2,000 characters
    exit_code: int | None = None  # negative: ended by that signal
    cpu_s: float = 0.0
    wall_s: float = 0.0


# Asked after each execution of an input, in order; keep_going(job index, test index, execution) →
# False: the job's remaining inputs are not run.
KeepGoing = Callable[[int, int, Execution], bool]


class SandboxError(RuntimeError):
    """The sandbox cannot start or cannot go on; the message names the way out."""


class Sandbox(ABC):
    """A pool of isolated workers."""

    name: str  # "docker", "embedded"
    strength: str  # one line for the log and run.json: what holds a program in
    platform: str = ""  # what a verdict may depend on: the backend, Python's and numpy's version

    @abstractmethod
    def run(
        self, jobs: Sequence[Job], keep_going: KeepGoing
    ) -> Iterator[tuple[int, list[Execution]]]:
        """Run all jobs on all workers; yield (job index, executions) as each job ends.

        A program that does not compile has one execution that says so, whatever its inputs.
        A stuck or dead worker is replaced and its job run again once; if that fails too, the job's
        last execution is an INFRA_ERROR. Nothing is lost and nothing hangs.
        """

    def abandon(self) -> None:  # noqa: B027  where runs are short there is no need to
        """From another thread: have a `run` that goes on now end soon, with a SandboxError."""

    @abstractmethod
    def close(self) -> None:
        """End all workers and leave nothing behind; safe to call twice."""

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
