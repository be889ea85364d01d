"""The interface of a sandbox: jobs (a program and its inputs) in, executions out.

A sandbox knows no problem, and no program can find an expected output in it: only a job that runs a
checker program has one, in its own input. Verdicts are decided outside, by `envs.judge`.
Backends: `docker.py`, `embedded.py`.
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
    STARVED = "STARVED"  # it got no core for too long; inconclusive
    INFRA_ERROR = "INFRA_ERROR"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of each test. CPU time decides; wall time is a wider net for programs that sleep.

    Time in which a test was stopped, or waited for a core, does not count towards `wall_s`
    (`inside/kernel.py`).
    """

    cpu_s: float = 2.0
    wall_s: float = 10.0
    memory_mb: int = 256
    output_mb: int = 16


@dataclass(frozen=True, slots=True)
class Job:
    """One program and the inputs to run it on, in this order, each in a fresh process."""

    program: str
    # stdin, as a text or its bytes; with `fn_name`, the argument list as `inside/framing.py` has it
    inputs: tuple[str | bytes, ...]
    limits: Limits = Limits()
    fn_name: str | None = None  # stdout is then what the function returned, as `inside/framing.py`
    promising: bool = False  # likely to run on more than its first input; changes only costs


@dataclass(slots=True)
class Execution:
    """One program's run on one input.

    All executions of a job are kept until it ends; the caller empties each `stdout` after use.
    """

    outcome: Outcome
    stdout: bytes = b""
    stderr: str = ""  # the tail, at most 2,000 characters
    exit_code: int | None = None  # negative: ended by that signal
    cpu_s: float = 0.0  # from the program's first line on; of one that does not compile, until then
    compile_s: float = 0.0  # CPU time of compiling and starting before that; within no test's limit
    wall_s: float = 0.0
    lost_s: float = 0.0  # of `wall_s`: it had no core, or the worker stood still
    idle_s: float = 0.0  # of `wall_s`: it waited by itself for so long or longer; 0 if unknown
    accounted: bool = False  # whatever it lost, it was past its wall limit
    # ended by a SIGKILL below all limits: the kernel's where the machine's memory is full, another
    # one from outside, or the program's own
    killed: bool = False
    late: bool = False  # it ended while the worker stood still, perhaps after its wall limit

    @property
    def used_s(self) -> float:
        """CPU seconds that it cost, to the microsecond, as a cache has them."""
        return round(self.cpu_s + self.compile_s, 6)


# (job index, test index, execution) -> whether to run the job's remaining inputs. Called after
# each execution of an input, in order.
KeepGoing = Callable[[int, int, Execution], bool]


class SandboxError(RuntimeError):
    """The sandbox cannot start or cannot continue; the message names the remedy."""


class Sandbox(ABC):
    """A pool of isolated workers."""

    name: str  # "docker", "embedded"
    strength: str  # one line for the log and run.json: how programs are confined
    platform: str = ""  # a verdict may depend on it: the backend, Python's and numpy's version

    @abstractmethod
    def run(
        self, jobs: Sequence[Job], keep_going: KeepGoing
    ) -> Iterator[tuple[int, list[Execution]]]:
        """Run all jobs on all workers; yield (job index, executions) as each job ends.

        A program that does not compile has one execution that reports so, whatever its inputs.
        A stuck or dead worker is replaced and its job run again once. If that fails too, the job's
        last execution is an INFRA_ERROR. No job is lost, and none hangs.
        """

    def abandon(self) -> None:  # noqa: B027  optional: short runs need none
        """End a current `run` soon, with a SandboxError; called from another thread."""

    @abstractmethod
    def close(self) -> None:
        """End all workers and leave nothing behind. Safe to call twice."""

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
