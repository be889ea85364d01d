"""A judging session: submissions arrive at once or in pieces, and their programs are run.

The order of tests depends only on what the judge knew when the session was opened. Its new verdicts
are stored when it closes, in the order of submission. So verdicts and counters depend neither on
how the submissions were cut into pieces nor on the timing of the sandbox's workers.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envs.environment import Submission
from envs.judge.budget import Budget
from envs.judge.checker_programs.checker_program import PROGRAM
from envs.judge.extract import extract_program
from envs.judge.grading import Grade, Summary, grade, judgement, summarize
from envs.judge.verdict_cache import CachedGrades
from envs.problem import Judgement, Problem, Verdict
from envs.sandbox.base import Execution, Job, Outcome

if TYPE_CHECKING:
    from envs.judge.judge import Judge


@dataclass(slots=True)
class PendingProgram:
    """A program to run, and the submissions that wait for its judgement."""

    problem: Problem
    program: str
    order: list[int]  # the problem's tests in the order in which they run
    limit_s: float  # of CPU time, for the verdict
    job: Job
    waiting: list[int]  # numbers of the submissions
    budget: Budget
    cpu_s: float = 0.0
    grades: dict[int, Grade] = field(default_factory=dict)  # by position in `order`
    judgement: Judgement | None = None
    failed_test: int | None = None
    reliable: dict[int, tuple[Grade, float]] = field(default_factory=dict)  # test → grade, CPU s
    wall_s: float = 0.0  # of judging: an equal share of the wall time of its piece
    from_cache: bool = False  # not run: judged from grades on disk
    rerun: bool = False  # its first run was doubtful, so its grades are not cached on disk
    checker_fault: bool = False  # the problem's checker program failed on it

    @property
    def result(self) -> Judgement:
        """The judgement. Raises RuntimeError before there is one."""
        if self.judgement is None:
            raise RuntimeError(f"a program for {self.problem.name} has no judgement yet")
        return self.judgement

    def keep(self, position: int, found: Grade, execution: Execution) -> Grade:
        """Keep the grade of a test, which says so if the budget is used up; return it."""
        if execution.outcome not in (Outcome.INFRA_ERROR, Outcome.STARVED):
            found = self.budget.charge(found, execution.cpu_s, execution.idle_s)
        self.grades[position] = found
        return found

    def answers(self) -> list[tuple[int, Judgement]]:
        """Return the judgement under the number of each waiting submission."""
        return [(index, self.result) for index in self.waiting]


class JudgingSession:
    """Opened by `Judge.open_session`; must be closed. Use it from one thread at a time."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._programs: dict[tuple[str, str], PendingProgram] = {}
        self._doubtful: list[PendingProgram] = []

    def judge(
        self, submissions: Iterable[tuple[int, Submission]]
    ) -> Iterator[tuple[int, Judgement]]:
        """Yield (index, judgement) as programs end; some doubtful ones may wait for `finish`."""
        answered: list[tuple[int, Judgement]] = []
        to_run: list[PendingProgram] = []
        for index, submission in submissions:
            self._admit(index, submission, to_run, answered)
        yield from answered
        begin = ended = time.monotonic()
        for pending in self._execute(to_run):
            ended = ended if pending.rerun else time.monotonic()
            yield from pending.answers()
        for pending in to_run:
            pending.wall_s = (ended - begin) / len(to_run)

    def finish(self) -> Iterator[tuple[int, Judgement]]:
        """Run programs once more that are still in doubt. Nothing may follow."""
        for pending in self._execute(sorted(self._doubtful, key=_first_index)):
            yield from pending.answers()

    def close(self) -> None:
        """Count and remember the judged programs, in the order of submission."""
        judged = [item for item in self._programs.items() if item[1].judgement is not None]
        for key, pending in sorted(judged, key=lambda item: _first_index(item[1])):
            self._judge.record(key, pending)
        self._judge.store_grades(
            [
                (key, CachedGrades(pending.reliable, pending.wall_s))
                for key, pending in judged
                if not (pending.rerun or pending.from_cache or pending.result.by_wall_time)
            ]
        )
        self._judge.evict()
        self._programs.clear()

    def _admit(
        self,
        index: int,
        submission: Submission,
        to_run: list[PendingProgram],
        answered: list[tuple[int, Judgement]],
    ) -> None:
        """Answer from memory or disk, join an equal pending program, or add a program to run."""
        judge, problem = self._judge, submission.problem
        judge.require_judgeable(problem)
        judge.stats.submissions += 1
        program = extract_program(submission.response)
        if program is None:
            judge.stats.without_program += 1
            answered.append((index, judge.no_program(problem)))
            return
        if left_out := judge.left_out(problem, program):
            answered.append((index, left_out))
            return
        key = (problem.hash, hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest())
        judged = judge.cached_judgement(key)
        if judged is not None:
            judge.stats.programs_cached += 1
            answered.append((index, judged))
        elif key in self._programs:
            judge.stats.programs_cached += 1
            pending = self._programs[key]
            pending.waiting.append(index)
            if pending.judgement is not None:  # in an earlier piece
                answered.append((index, pending.judgement))
        else:
            pending = self._programs[key] = judge.plan(index, problem, program)
            if self._judge_from_cache(pending, judge.cached_grades(key)):
                answered.append((index, pending.result))
            else:
                to_run.append(pending)

    def _judge_from_cache(self, pending: PendingProgram, cached: CachedGrades | None) -> bool:
        """Judge from grades on disk if they cover every test that a run would reach."""
        if cached is None:
            return False
        syntax_errors = [
            graded for graded in cached.tests.values() if graded[0].verdict is Verdict.SYNTAX_ERROR
        ]
        graded_tests: list[tuple[Grade, float]] = syntax_errors[:1]
        budget = pending.budget.fresh()
        for test in () if syntax_errors else pending.order:
            if test not in cached.tests:
                return False
            found, cpu_s = cached.tests[test]
            found = budget.charge(found, cpu_s, idle_s=0.0)  # with more, it would not be stored
            graded_tests.append((found, cpu_s))
            failed = found.verdict is not Verdict.ACCEPTED
            if found.ended or (failed and self._judge.config.early_stop):
                break
        pending.cpu_s = sum(cpu_s for _, cpu_s in graded_tests)
        pending.wall_s, pending.from_cache = cached.wall_s, True
        self._set_judgement(pending, [grade for grade, _ in graded_tests])
        return True

    def _execute(self, programs: Sequence[PendingProgram]) -> Iterator[PendingProgram]:
        """Run programs, at last those of problems with a checker program; yield them when judged.

        Those whose first run is in doubt run once more, on a share of the workers while others go
        on. Those that got no core wait for `finish`, when the machine is less busy.
        """
        yield from self._compare([one for one in programs if one.problem.checker != PROGRAM])
        checked = {n: one for n, one in enumerate(programs) if one.problem.checker == PROGRAM}
        for number, executions in self._judge.checkers.run(checked) if checked else ():
            if self._is_judged(checked[number], executions):
                yield checked[number]
            else:
                self._doubtful.append(checked[number])

    def _compare(self, programs: list[PendingProgram]) -> Iterator[PendingProgram]:
        """Run programs whose outputs are compared with the expected ones."""
        sandbox, early_stop = self._judge.sandbox, self._judge.config.early_stop
        jobs = [replace(one.job, again=True) if one.rerun else one.job for one in programs]

        def keep_going(number: int, position: int, execution: Execution) -> bool:
            if execution.outcome in (Outcome.INFRA_ERROR, Outcome.STARVED, Outcome.SYNTAX_ERROR):
                return False
            found = _graded(programs[number], position, execution)
            return not found.ended and (found.verdict is Verdict.ACCEPTED or not early_stop)

        for number, executions in sandbox.run(jobs, keep_going) if jobs else ():
            pending = programs[number]
            if self._is_judged(pending, executions):
                yield pending
            elif sandbox.takes_more and not _starved(executions):
                programs.append(pending)
                jobs.append(replace(pending.job, again=True))
            else:
                self._doubtful.append(pending)

    def _is_judged(self, pending: PendingProgram, executions: list[Execution]) -> bool:
        """Conclude a run; return False if the program has to run once more."""
        if not self._conclude(pending, executions).doubtful or pending.rerun:
            return True
        pending.judgement, pending.rerun = None, True
        self._judge.stats.judged_again += 1
        return False

    def _conclude(self, pending: PendingProgram, executions: list[Execution]) -> Summary:
        """Grade a program's executions and set its judgement."""
        pending.cpu_s += sum(execution.cpu_s for execution in executions)
        grades = [_graded(pending, *item) for item in enumerate(executions)]
        pending.reliable = {
            test: (grade, execution.cpu_s)
            for test, grade, execution in zip(pending.order, grades, executions, strict=False)
            if not (grade.doubtful or grade.by_wall_time)
        }
        pending.grades.clear()
        pending.budget = pending.budget.fresh()
        return self._set_judgement(pending, grades)

    def _set_judgement(self, pending: PendingProgram, grades: list[Grade]) -> Summary:
        """Set the judgement from the grades, which are in the program's order of tests."""
        early_stop = self._judge.config.early_stop
        summary = summarize(grades, len(pending.order), early_stop=early_stop)
        pending.failed_test = None
        if summary.failed_position is not None:
            pending.failed_test = pending.order[summary.failed_position]
        pending.judgement = judgement(
            *(pending.problem, pending.program, summary, pending.failed_test),
            cpu_s=pending.cpu_s,
            judge_version=self._judge.version,
        )
        return summary


def _starved(executions: Sequence[Execution]) -> bool:
    return any(execution.outcome is Outcome.STARVED for execution in executions)


def _first_index(pending: PendingProgram) -> int:
    return min(pending.waiting)


def _graded(pending: PendingProgram, position: int, execution: Execution) -> Grade:
    """Grade an execution once and drop its output: many outputs would fill the memory."""
    if position not in pending.grades:
        expected = pending.problem.tests[pending.order[position]].output
        found = grade(pending.problem.checker, expected, pending.limit_s, execution)
        execution.stdout = b""
        return pending.keep(position, found, execution)
    return pending.grades[position]
