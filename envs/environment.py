"""The environment contract: responses to problems go in, judgements come out.

`envs.judge.Judge` is the environment for programs; it runs them in a sandbox. A task whose
responses are not programs names another environment (`task.environment`) and needs no sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from envs.problem import Judgement, Problem


@dataclass(frozen=True, slots=True)
class Submission:
    """One response to one problem."""

    problem: Problem
    response: str


@dataclass
class JudgeStats:
    """Counters since the environment was made.

    Only `cpu_s`, `judged_again`, `by_wall_time`, `programs_recalled` and `recalled_s` depend on the
    machine.
    """

    submissions: int = 0
    without_program: int = 0
    programs_judged: int = 0
    programs_cached: int = 0  # judged before, or equal to another program of the same call
    tests_run: int = 0  # up to each program's first failed test where judging stops there
    judged_again: int = 0  # near the time limit, out of wall time, or after an infrastructure error
    by_wall_time: int = 0  # programs whose verdict wall time decided: these are not remembered
    infra_errors: int = 0  # programs that stayed without a verdict
    checker_faults: int = 0  # of infra_errors: a problem's own checker program failed
    cpu_s: float = 0.0
    programs_recalled: int = 0  # of programs_judged: answered from the verdict cache on disk
    recalled_s: float = 0.0  # wall time that judging these took when they were run


class Environment(Protocol):
    """Judge responses. The same submissions in the same order give the same judgements.

    These three members are all that a class named by `task.environment` needs. Further capabilities
    are the protocols below; callers test for them with `isinstance`.
    """

    version: str  # changes whenever a judgement may change: it keys verdicts stored on disk
    stats: JudgeStats  # the cost of judging, for the budget ledger

    def judge(self, submissions: Sequence[Submission]) -> list[Judgement]:
        """Judge all, in order. Raises ValueError for a problem that cannot be judged."""
        ...


@runtime_checkable
class StatefulEnvironment(Environment, Protocol):
    """An environment that learns as it judges, so a checkpoint has to hold its state."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values: one dictionary for each kind of knowledge."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the state."""
        ...


class Session(Protocol):
    """A judging session: submissions arrive in pieces, verdicts and counters equal one call's."""

    def judge(
        self, submissions: Iterable[tuple[int, Submission]]
    ) -> Iterator[tuple[int, Judgement]]:
        """Judge a piece of numbered submissions. Yield judgements as they are ready."""
        ...

    def finish(self) -> Iterator[tuple[int, Judgement]]:
        """Yield the judgements that `judge` held back. No submission may follow."""
        ...

    def close(self) -> None:
        """Count and remember what was judged."""
        ...


@runtime_checkable
class IncrementalEnvironment(Environment, Protocol):
    """An environment that can judge finished responses while others are still generated."""

    def open_session(self) -> Session:
        """Open a session, to be closed. One at a time, used from one thread."""
        ...

    def abandon(self) -> None:
        """Make the running session fail soon. Called from another thread."""
        ...


@runtime_checkable
class AsyncEnvironment(Environment, Protocol):
    """An environment that judges in other processes."""

    def submit(self, submissions: Sequence[Submission]) -> Callable[[], list[Judgement]]:
        """Start judging; return a function that waits for the judgements, in order."""
        ...
