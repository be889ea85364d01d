"""The door of this room: responses to problems go in, judgements come out.

`envs.judge.judge.Judge` is the environment of programs, with a sandbox behind it. A task whose responses
are no programs names another one (task.environment) and opens no sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from envs.problem import Judgement, Problem


@dataclass(frozen=True, slots=True)
class Submission:
    """One response to one problem."""

    problem: Problem
    response: str


@dataclass
class JudgeStats:
    """Counters since the judge was made.

    Only cpu_s, judged_again and the two that tell of what was kept on disk depend on the machine.
    """

    submissions: int = 0
    without_program: int = 0
    programs_judged: int = 0
    programs_cached: int = 0  # judged before, or equal to another of the same call
    tests_run: int = 0  # up to each program's first failed test where judging stops there
    judged_again: int = 0  # near the time limit, out of wall time, or after an infrastructure error
    infra_errors: int = 0  # programs that stayed without a verdict
    cpu_s: float = 0.0
    programs_recalled: int = 0  # of those judged, answered from what another run had judged
    recalled_s: float = 0.0  # wall time that judging these took when they were run


class Environment(Protocol):
    """Judges responses; the same submissions in the same order give the same judgements.

    One that learns as it judges has `state_dict` and `load_state_dict` too, of plain values, so
    that a run which was stopped goes on as it would have. One that can be asked in pieces has `sit`
    and `abandon` (`envs.judge.judge.Judge`): it judges what is written while the rest is.
    """

    version: str  # another one wherever a judgement may be another: it keys what is kept on disk
    stats: JudgeStats  # what the work has cost, for the budget

    def judge(self, submissions: Sequence[Submission]) -> list[Judgement]:
        """Judge all, in order. Raises ValueError for a problem that cannot be judged."""
        ...
