"""One sitting of the judge: submissions come in, all at once or in pieces, and programs are run.

What was known of tests and programs when it was opened decides the order of tests, and what it
learns is known when it closes, in the order of submission. So however the submissions were cut, and
however the sandbox's workers took turns, verdicts and counters are the same.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envs.environment import Submission
from envs.judge.extract import extract_program
from envs.judge.grading import Grade, Summary, grade, judgement, summarize
from envs.judge.verdict_cache import Known
from envs.problem import Judgement, Problem, Verdict
from envs.sandbox.base import Execution, Job, Outcome

if TYPE_CHECKING:
    from envs.judge.judge import Judge


@dataclass(slots=True)
class PendingProgram:
    """One program to run, and every submission that waits for it."""

    problem: Problem
    program: str
    order: list[int]  # the problem's tests in the order in which they run
    limit_s: float
    job: Job
    waiting: list[int]
    cpu_s: float = 0.0
    grades: dict[int, Grade] = field(default_factory=dict)  # by position in `order`
    judgement: Judgement | None = None
    failed_test: int | None = None
    came_to: dict[int, tuple[Grade, float]] = field(default_factory=dict)  # test → grade, CPU s
    wall_s: float = 0.0  # of judging, the program's share of those it was run with
    recalled: bool = False  # it was not run: what it came to was on disk
    doubtful: bool = False  # at first: what it comes to in the end is not for other runs


class JudgingSession:
    """Opened by `Judge.open_session`; to be closed. Not for use from two threads at once."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._plans: dict[tuple[str, str], PendingProgram] = {}
        self._doubtful: list[PendingProgram] = []

    def judge(
        self, submissions: Iterable[tuple[int, Submission]]
    ) -> Iterator[tuple[int, Judgement]]:
        """Yield (index, judgement) as programs end; those in doubt wait for `finish`."""
        known: list[tuple[int, Judgement]] = []
        plans: list[PendingProgram] = []
        for index, submission in submissions:
            self._admit(index, submission, plans, known)
        yield from known
        begin = time.monotonic()
        for at, executions in self._execute(plans):
            if self._conclude(plans[at], executions).doubtful:
                self._doubtful.append(plans[at])
                plans[at].judgement, plans[at].doubtful = None, True
            else:
                yield from _told(plans[at])
        for plan in plans:
            plan.wall_s = (time.monotonic() - begin) / len(plans)

    def finish(self) -> Iterator[tuple[int, Judgement]]:
        """Run those in doubt once more, each alone in the sandbox: nothing else may come now."""
        for plan in sorted(self._doubtful, key=_first):
            self._judge.stats.judged_again += 1
            for _, executions in self._execute([plan]):
                self._conclude(plan, executions)
            yield from _told(plan)

    def close(self) -> None:
        """Count and remember what was judged, in the order of submission."""
        for key, plan in sorted(self._plans.items(), key=lambda item: _first(item[1])):
            if plan.judgement is not None:
                self._judge.learn(key, plan)
        self._judge.keep(
            [
                (key, Known(plan.came_to, plan.wall_s))
                for key, plan in self._plans.items()
                if plan.judgement is not None and not plan.doubtful and not plan.recalled
            ]
        )
        self._judge.forget()
        self._plans.clear()

    def _admit(
        self,
        index: int,
        submission: Submission,
        plans: list[PendingProgram],
        known: list[tuple[int, Judgement]],
    ) -> None:
        """Answer from what is known, join an equal program's plan, or make a new plan."""
        judge, problem = self._judge, submission.problem
        judge.require_judgeable(problem)
        judge.stats.submissions += 1
        program = extract_program(submission.response)
        if program is None:
            judge.stats.without_program += 1
            known.append((index, judge.no_program(problem)))
            return
        key = (problem.hash, hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest())
        judged = judge.known(key)
        if judged is not None:
            judge.stats.programs_cached += 1
            known.append((index, judged))
        elif key in self._plans:
            judge.stats.programs_cached += 1
            plan = self._plans[key]
            plan.waiting.append(index)
            if plan.judgement is not None:  # of an earlier piece
                known.append((index, plan.judgement))
        else:
            plan = self._plans[key] = judge.plan(index, problem, program)
            if self._recalled(plan, judge.recall(key)):
                known.append((index, plan.judgement))
            else:
                plans.append(plan)

    def _recalled(self, plan: PendingProgram, known: Known | None) -> bool:
        """Conclude from what is on disk, where that is all that a run would have shown."""
        if known is None:
            return False
        of_all = [of for of in known.tests.values() if of[0].verdict is Verdict.SYNTAX_ERROR]
        grades: list[tuple[Grade, float]] = of_all[:1]
        for test in () if of_all else plan.order:
            if test not in known.tests:
                return False
            grades.append(known.tests[test])
            failed = grades[-1][0].verdict is not Verdict.ACCEPTED
            if failed and self._judge.config.early_stop:
                break
        plan.cpu_s, plan.wall_s, plan.recalled = sum(s for _, s in grades), known.wall_s, True
        self._say(plan, [grade for grade, _ in grades])
        return True

    def _execute(self, plans: list[PendingProgram]) -> Iterator[tuple[int, list[Execution]]]:
        early_stop = self._judge.config.early_stop

        def keep_going(at: int, position: int, execution: Execution) -> bool:
            if execution.outcome in (Outcome.INFRA_ERROR, Outcome.STARVED, Outcome.SYNTAX_ERROR):
                return False
            passed = _graded(plans[at], position, execution).verdict is Verdict.ACCEPTED
            return passed or not early_stop

        if plans:
            yield from self._judge.sandbox.run([plan.job for plan in plans], keep_going)

    def _conclude(self, plan: PendingProgram, executions: list[Execution]) -> Summary:
        plan.cpu_s += sum(execution.cpu_s for execution in executions)
        grades = [_graded(plan, *item) for item in enumerate(executions)]
        spent = (execution.cpu_s for execution in executions)
        came_to = zip(plan.order, zip(grades, spent, strict=True), strict=False)
        plan.came_to = {test: of for test, of in came_to if not of[0].doubtful}
        plan.grades.clear()
        return self._say(plan, grades)

    def _say(self, plan: PendingProgram, grades: list[Grade]) -> Summary:
        """The judgement that these grades, in the plan's order, come to."""
        early_stop = self._judge.config.early_stop
        summary = summarize(grades, len(plan.order), early_stop=early_stop)
        plan.failed_test = None
        if summary.failed_position is not None:
            plan.failed_test = plan.order[summary.failed_position]
        plan.judgement = replace(
            judgement(plan.problem, plan.program, summary, plan.failed_test),
            cpu_s=plan.cpu_s,
            judge_version=self._judge.version,
        )
        return summary


def _first(plan: PendingProgram) -> int:
    return min(plan.waiting)


def _told(plan: PendingProgram) -> Iterator[tuple[int, Judgement]]:
    return ((index, plan.judgement) for index in tuple(plan.waiting))


def _graded(plan: PendingProgram, position: int, execution: Execution) -> Grade:
    """Grade an execution, once, and let its output go: many of them would fill the memory."""
    if position not in plan.grades:
        expected = plan.problem.tests[plan.order[position]].output
        plan.grades[position] = grade(plan.problem.checker, expected, plan.limit_s, execution)
        execution.stdout = b""
    return plan.grades[position]
