"""One program of a problem with a checker program: its executions, and outputs to be checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envs.judge.checker_programs.checker_program import (
    PROGRAM,
    Decision,
    Finding,
    checker_input,
    is_no_number,
)
from envs.judge.grading import Grade, grade, kept_output
from envs.problem import CheckerProgram, Problem, Verdict
from envs.sandbox.base import Execution, Outcome

if TYPE_CHECKING:
    from envs.judge.session import PendingProgram

HELD_BYTES = 8 << 20  # of a program's outputs, beyond which they are checked first
# A checker that takes a larger share of its limit with the expected output is too slow itself.
SLOW_SHARE = 0.5
NO_NUMBER = Decision(Finding.REJECTED, "a NaN or an infinity is no answer")
NO_VERDICT = (Outcome.INFRA_ERROR, Outcome.STARVED, Outcome.SYNTAX_ERROR)


def checker_of(problem: Problem) -> CheckerProgram:
    """Return the checker program of a problem that has one."""
    assert problem.checker_program is not None
    return problem.checker_program


@dataclass(eq=False)
class CheckedProgram:
    """One program: its executions, and its outputs that wait for the checker."""

    number: int
    pending: PendingProgram
    early_stop: bool
    executions: list[Execution] = field(default_factory=list)
    unchecked: dict[int, bytes] = field(default_factory=dict)  # position → output
    failed: bool = False  # no further test is needed
    stopped_at: int | None = None  # position of the first failure, if judging ends there
    # the position where the checker ended without a decision, and how
    crashed: tuple[int, Decision] | None = None

    def __post_init__(self) -> None:
        self.pending.checker_fault = False  # of an earlier run

    @property
    def checker(self) -> CheckerProgram:
        return checker_of(self.pending.problem)

    @property
    def promising(self) -> bool:
        return self.pending.job.promising or bool(self.executions)

    @property
    def next_inputs(self) -> tuple[str | bytes, ...]:
        """The inputs to run on next: the first alone, unless the program will likely pass it."""
        if self.failed or self.unchecked or self.stopped_at is not None:
            return ()
        inputs, done = self.pending.job.inputs, len(self.executions)
        one = self.early_stop and not self.promising
        return inputs[done : done + 1] if one else inputs[done:]

    @property
    def ended(self) -> bool:
        return self.stopped_at is not None or not (self.unchecked or self.next_inputs)

    @property
    def crash_key(self) -> tuple[str, int]:
        """The problem and the test on whose output the checker crashed."""
        assert self.crashed is not None
        return self.pending.problem.hash, self.pending.order[self.crashed[0]]

    def checker_input(self, position: int) -> bytes:
        """Return what the checker reads of the output at a position."""
        test = self.pending.problem.tests[self.pending.order[position]]
        return checker_input(self.checker.language, test, self.unchecked[position])

    def expected_input(self) -> bytes:
        """Return what the checker would read of the expected output where it crashed."""
        test = self.pending.problem.tests[self.crash_key[1]]
        return checker_input(self.checker.language, test, encoded(test.output))

    def take(self, position: int, execution: Execution) -> bool:
        """Grade an execution as far as that needs no checker; return whether to go on."""
        if execution.outcome in NO_VERDICT:
            self.failed = True
            return False
        output, execution.stdout = execution.stdout, b""
        expected = self.pending.problem.tests[self.pending.order[position]].output
        # Graded as if the output were right; the checker may still reject it.
        graded = grade("text", "", self.pending.limit_s, execution)
        graded = self.pending.keep(position, graded, execution)
        finished = execution.outcome is Outcome.FINISHED
        if finished and output.strip() != encoded(expected).strip():
            if is_no_number(output, expected):
                graded = self.pending.grades[position] = rejected(graded, NO_NUMBER, output)
            else:
                self.unchecked[position] = output
        wrong = graded.verdict is not Verdict.ACCEPTED
        self.failed |= bool(graded.ended) or (self.early_stop and wrong)
        return not self.failed and sum(map(len, self.unchecked.values())) < HELD_BYTES

    def decide(self, position: int, decision: Decision) -> bool:
        """Take a decision on an output; return whether the checker should go on."""
        if decision.finding is Finding.CRASHED:
            self.crashed = (position, decision)
            return False
        output = self.unchecked.pop(position)
        if decision.finding is Finding.ACCEPTED:
            return True
        if decision.finding is Finding.REJECTED:
            before = self.pending.grades[position]
            self.pending.grades[position] = rejected(before, decision, output)
            # Each further output could take a checker that exceeded a limit as long again.
            self.stopped_at = position if self.early_stop or decision.at_limit else None
        else:
            self.pending.grades[position] = Grade(
                Verdict.INFRA_ERROR, decision.reason, doubtful=True
            )
            self.pending.checker_fault = decision.finding is Finding.FAULT
            self.stopped_at = position
        return self.stopped_at is None

    def settle_crash(self, share: float | None) -> None:
        """Decide on the output with which the checker ended without a decision.

        `share`: that of its CPU limit in which it decides on the expected one, infinity if it does
        not; None if the sandbox failed.
        """
        assert self.crashed is not None
        (position, crash), self.crashed = self.crashed, None
        if share is None:
            finding = Finding.UNKNOWN
        else:
            copes = share <= (SLOW_SHARE if crash.at_limit else 1.0)
            finding = Finding.REJECTED if copes else Finding.FAULT
        self.decide(position, replace(crash, finding=finding))

    def close(self) -> float:
        """Drop executions behind the first failure; return their CPU seconds."""
        if self.stopped_at is None:
            return 0.0
        behind = self.executions[self.stopped_at + 1 :]
        del self.executions[self.stopped_at + 1 :]
        return sum(execution.cpu_s for execution in behind)


def rejected(before: Grade, decision: Decision, output: bytes) -> Grade:
    """Return the grade of a rejected output; what wall time decided before stays in force."""
    return replace(
        before,
        verdict=Verdict.WRONG_ANSWER,
        detail=decision.reason,
        doubtful=(before.doubtful and before.by_wall_time) or decision.by_wall_time,
        by_wall_time=before.by_wall_time or decision.by_wall_time,
        output=kept_output(PROGRAM, output),
    )


def encoded(text: str) -> bytes:
    """Return a text of a data set, which may hold half of a character, as bytes."""
    return text.encode("utf-8", "surrogatepass")
