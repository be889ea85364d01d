"""Grade executions: one execution to a grade, all of a program's to a judgement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from envs.judge.checkers import check, shown_result
from envs.messages import readable, shortened
from envs.problem import Judgement, Problem, Verdict
from envs.sandbox.base import Execution, Job, Outcome

MAX_DETAIL_CHARS = MAX_OUTPUT_CHARS = MAX_EXCEPTION_CHARS = 500

# Where the sandbox cannot account for a program's wall time: one stopped by the wall limit after
# less than this share of its CPU limit was waiting by itself and was not starved by other
# processes. Another run would end the same way.
_STARVED_SHARE = 0.1

_FRAME = re.compile(r'^  File "main\.py", line ([0-9]{1,9})', re.MULTILINE)
# The sandbox's own frame, where it calls the problem's function; a KeyError there is its absence.
_CALLER = '  File "<envs.sandbox.inside.program>"'
_NO_FUNCTION = "KeyError: "
_HEAD = "Traceback (most recent call last):\n"
_IN_SYNTAX_ERROR = re.compile(r" \((?:main\.py, )?line ([0-9]{1,9})\)$")
_ADDRESS = re.compile(r"\bat 0x[0-9a-f]+")  # another one in each run


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one test."""

    verdict: Verdict
    detail: str = ""
    doubtful: bool = False  # a run on a quieter machine may give another grade
    by_wall_time: bool = False  # decided by wall time, or by a SIGKILL from anywhere
    ended: str = ""  # no further test is run: the program's budget is used up, in words
    output: str = ""  # of a WRONG_ANSWER: what the program printed or returned (`kept_output`)


@dataclass(slots=True)
class Budget:
    """What all tests of a program together may use of time that no right program needs.

    CPU time on tests that a program passes is never counted: with 200 tests, a right program may
    use 60 times one test's limit. Counted are the CPU time of tests that ended at a time limit,
    which only matters where judging goes on after a failure, and the time in which a program waited
    by itself.
    """

    cpu_s: float  # of tests that end at a time limit
    idle_s: float  # of all tests: neither running nor waiting for a core
    used_cpu_s: float = 0.0
    used_idle_s: float = 0.0

    def charge(self, grade: Grade, cpu_s: float, idle_s: float) -> Grade:
        """Count a test; return its grade, which says so if the budget is used up.

        A program whose tests wait too long together is at a time limit, whatever they print.
        """
        self.used_idle_s += idle_s
        if grade.verdict is Verdict.TIME_LIMIT:
            self.used_cpu_s += cpu_s
        if self.used_idle_s > self.idle_s:
            ended = f"waited {self.used_idle_s:.1f} s in all (budget {self.idle_s:g} s)"
            if grade.verdict is Verdict.ACCEPTED:
                grade = replace(grade, verdict=Verdict.TIME_LIMIT, detail="")
            return replace(grade, ended=ended, by_wall_time=True)
        if self.used_cpu_s > self.cpu_s:
            ended = f"time-outs took {self.used_cpu_s:.1f} s CPU (budget {self.cpu_s:g} s)"
            return replace(grade, ended=ended)
        return grade

    def fresh(self) -> Budget:
        """Return the budget of another run."""
        return Budget(self.cpu_s, self.idle_s)


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
    killed: bool = False  # once: it, or its checker, ended by a SIGKILL
    checker_fault: bool = False  # the problem's checker program failed on it

    def grade(self, position: int, execution: Execution) -> Grade:
        """Grade an execution once and drop its output: many outputs would fill the memory."""
        if position not in self.grades:
            expected = self.problem.tests[self.order[position]].output
            found = grade(self.problem.checker, expected, self.limit_s, execution)
            execution.stdout = b""
            return self.keep(position, found, execution)
        return self.grades[position]

    def keep(self, position: int, found: Grade, execution: Execution) -> Grade:
        """Keep the grade of a test, which says so if the budget is used up; return it."""
        if execution.outcome not in (Outcome.INFRA_ERROR, Outcome.STARVED):
            found = self.budget.charge(found, execution.used_s, execution.idle_s)
        self.grades[position] = found
        return found

    def answers(self) -> list[tuple[int, Judgement]]:
        """Return the judgement under the number of each waiting submission."""
        assert self.judgement is not None, f"a program for {self.problem.name} was not judged"
        return [(index, self.judgement) for index in self.waiting]


def grade(checker: str, expected: str, limit_s: float, execution: Execution) -> Grade:
    """Grade one execution. `limit_s` is CPU time; the sandbox adds a margin to it.

    Doubtful are: a right answer within that margin, running out of wall time while computing unless
    all of that time is accounted for, an end that nobody watched, a SIGKILL that may come from
    outside, getting no core, and a failure of the infrastructure. Any other wrong answer is not
    doubtful.
    """
    if execution.outcome is Outcome.INFRA_ERROR:
        return Grade(Verdict.INFRA_ERROR, execution.stderr, doubtful=True)
    times = f"{execution.cpu_s:.2f} s CPU"
    if execution.wall_s:  # not of a program that was still being compiled
        times += f", {execution.wall_s:.2f} s wall"
    if execution.lost_s >= 0.01:
        times += f", {execution.lost_s:.2f} s of it stopped or without a core"
    if execution.outcome is Outcome.STARVED:
        return Grade(Verdict.INFRA_ERROR, f"{times}: no core was free", doubtful=True)
    if execution.outcome is Outcome.TIME_LIMIT:
        starved = limit_s * _STARVED_SHARE <= execution.cpu_s <= limit_s
        return Grade(
            Verdict.TIME_LIMIT,
            f"{times} (limit {limit_s:g} s CPU)",
            doubtful=starved and not execution.accounted,
            by_wall_time=execution.wall_s > 0 and execution.cpu_s <= limit_s,
        )
    late = execution.late or execution.killed
    if execution.outcome is not Outcome.FINISHED:
        verdict, detail = Verdict(execution.outcome.value), execution.stderr
        if execution.killed:
            detail = f"{detail}\nended by SIGKILL, below its memory limit".strip()
        return Grade(verdict, detail, doubtful=late, by_wall_time=late)
    right, difference = check(checker, expected, execution.stdout)
    if not right:
        output = kept_output(checker, execution.stdout)
        return Grade(Verdict.WRONG_ANSWER, difference, late, late, output=output)
    if execution.cpu_s > limit_s:
        detail = f"{execution.cpu_s:.2f} s CPU (limit {limit_s:g} s)"
        return Grade(Verdict.TIME_LIMIT, detail, doubtful=True, by_wall_time=late)
    return Grade(Verdict.ACCEPTED, doubtful=late, by_wall_time=late)


def kept_output(checker: str, stdout: bytes) -> str:
    """Return the first MAX_OUTPUT_CHARS of an output, readable; of a call, of what it returned."""
    if checker in ("call", "assert"):
        text = shown_result(stdout, 2 * MAX_OUTPUT_CHARS)
    else:
        text = stdout[: 4 * MAX_OUTPUT_CHARS + 4].decode("utf-8", "replace")  # 4 bytes a character
    text = readable(_ADDRESS.sub("at 0x…", text)[: MAX_OUTPUT_CHARS + 1])
    return text if len(text) <= MAX_OUTPUT_CHARS else text[: MAX_OUTPUT_CHARS - 1] + "…"


def summarize(
    problem: Problem,
    program: str,
    grades: Sequence[Grade],
    order: Sequence[int],
    *,
    early_stop: bool,
    cpu_s: float = 0.0,
    judge_version: str = "",
) -> tuple[Judgement, int | None, bool]:
    """Count grades in running order; with `early_stop`, up to the first failure.

    `order`: the problem's tests as they run. Returns the judgement, the first failed test, and
    whether another run may give another judgement. The verdict is that of the first failure, except
    that an INFRA_ERROR anywhere takes precedence. Missing tests without a failure are an
    INFRA_ERROR too, since the sandbox has lost them.
    """
    counted: list[Grade] = []
    failed: tuple[int, Grade] | None = None
    for position, grade in enumerate(grades):
        counted.append(grade)
        infra_error = grade.verdict is Verdict.INFRA_ERROR
        if grade.verdict is not Verdict.ACCEPTED and (failed is None or infra_error):
            failed = (position, grade)
        if failed is not None and (early_stop or infra_error):
            break
    doubtful = any(grade.doubtful for grade in counted)
    if failed is None and len(grades) < len(order):
        failed = (len(grades), Grade(Verdict.INFRA_ERROR, "the sandbox left tests out"))
        doubtful = True
    position, first = failed or (0, Grade(Verdict.ACCEPTED))
    compiled = first.verdict is not Verdict.SYNTAX_ERROR
    test = None
    if first.verdict not in (Verdict.ACCEPTED, Verdict.INFRA_ERROR):
        test = order[position]
    ended = next((grade.ended for grade in counted if failed and grade.ended), "")
    detail = "; ".join(filter(None, (first.detail, ended))).strip()
    if test is not None and compiled:
        detail = f"test {test}: {detail}" if detail else f"test {test}"
    detail = detail if len(detail) <= MAX_DETAIL_CHARS else "…" + detail[-MAX_DETAIL_CHARS:]
    raised = first.verdict in (Verdict.RUNTIME_ERROR, Verdict.SYNTAX_ERROR)
    not_run = (Verdict.SYNTAX_ERROR, Verdict.INFRA_ERROR)
    judgement = Judgement(
        verdict=first.verdict,
        passed=sum(grade.verdict is Verdict.ACCEPTED for grade in counted),
        total=len(problem.tests),
        run=sum(grade.verdict not in not_run for grade in counted),
        program=program,
        detail=readable(detail),
        problem_hash=problem.hash,
        by_wall_time=any(grade.by_wall_time for grade in counted),
        cpu_s=cpu_s,
        judge_version=judge_version,
        failed_test=test if compiled else None,
        output=first.output,
        exception=exception_text(first.detail) if raised else "",
    )
    return judgement, test, doubtful


def exception_text(stderr: str) -> str:
    """Return `line 3: ZeroDivisionError: division by zero` from the end of a program's stderr.

    The line is that of the last frame in the program itself, left out where no such frame is left.
    Without a traceback the text is what the program wrote, such as that of `sys.exit(TEXT)`. At
    most MAX_EXCEPTION_CHARS, the middle left out, and readable.
    """
    text = stderr.strip("\n")
    before, head, traceback = text.rpartition(_HEAD)
    frames = list(_FRAME.finditer(text, len(before)))
    line, message = None, text
    if head or frames:
        line = frames[-1][1] if frames else None
        message = _after_frames(traceback if head else text)
        if line is None and _CALLER in traceback and message.startswith(_NO_FUNCTION):
            message = f"NameError: name {message.removeprefix(_NO_FUNCTION)} is not defined"
    elif found := _IN_SYNTAX_ERROR.search(text):
        line, message = found[1], text[: found.start()]
    message = message.strip()
    if line and message:
        message = f"line {line}: {message}"
    return shortened(readable(_ADDRESS.sub("at 0x…", message)), MAX_EXCEPTION_CHARS)


def _after_frames(traceback: str) -> str:
    """Return what follows the last frame's lines: the exception, whose message may have several."""
    lines = traceback.split("\n")
    frames = [i for i, line in enumerate(lines) if line.startswith('  File "')]
    first = frames[-1] + 1 if frames else 0
    while first < len(lines) - 1 and lines[first].startswith((" ", "\t")):
        first += 1  # the line of the source, marks below it, "[Previous line repeated …]"
    return "\n".join(lines[first:])
