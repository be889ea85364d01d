"""Grade executions: one execution to a grade, all of a program's to a judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from envs.judge.checker import check
from envs.judge.exceptions import exception_text, without_addresses
from envs.judge.returned_values import shown_result
from envs.problem import Judgement, Problem, Verdict
from envs.readable import readable
from envs.sandbox.base import Execution, Outcome

MAX_DETAIL_CHARS = 500
MAX_OUTPUT_CHARS = 500

# Where the sandbox cannot account for a program's wall time: one stopped by the wall limit after
# less than this share of its CPU limit was waiting by itself and was not starved by other
# processes. Another run would end the same way.
_STARVED_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one test."""

    verdict: Verdict
    detail: str = ""
    doubtful: bool = False  # a run on a quieter machine may give another grade
    by_wall_time: bool = False  # decided by wall time
    ended: str = ""  # no further test is run: the program's budget is used up, in words
    output: str = ""  # of a WRONG_ANSWER: what the program printed or returned (`kept_output`)


@dataclass(frozen=True, slots=True)
class Summary:
    """The counted grades of one program's run."""

    verdict: Verdict
    passed: int
    run: int
    detail: str
    failed_position: int | None  # of the first failed test, in running order
    doubtful: bool
    by_wall_time: bool = False
    output: str = ""
    exception: str = ""


def grade(checker: str, expected: str, limit_s: float, execution: Execution) -> Grade:
    """Grade one execution. `limit_s` is CPU time; the sandbox adds a margin to it.

    Doubtful are: a right answer within that margin, running out of wall time while computing unless
    all of that time is accounted for, an end that nobody watched, getting no core, and a failure of
    the infrastructure. Any other wrong answer is not doubtful.
    """
    if execution.outcome is Outcome.INFRA_ERROR:
        return Grade(Verdict.INFRA_ERROR, execution.stderr, doubtful=True)
    detail = _times(execution)
    if execution.outcome is Outcome.STARVED:
        return Grade(Verdict.INFRA_ERROR, f"{detail}: no core was free", doubtful=True)
    if execution.outcome is Outcome.TIME_LIMIT:
        starved = limit_s * _STARVED_SHARE <= execution.cpu_s <= limit_s
        return Grade(
            Verdict.TIME_LIMIT,
            f"{detail} (limit {limit_s:g} s CPU)",
            doubtful=starved and not execution.accounted,
            by_wall_time=execution.wall_s > 0 and execution.cpu_s <= limit_s,
        )
    found = _grade_end(checker, expected, limit_s, execution)
    return replace(found, by_wall_time=True) if execution.late else found


def _grade_end(checker: str, expected: str, limit_s: float, execution: Execution) -> Grade:
    """Grade an execution that ended before a time limit."""
    late = execution.late
    if execution.outcome is not Outcome.FINISHED:
        return Grade(Verdict(execution.outcome.value), execution.stderr, doubtful=late)
    right, difference = check(checker, expected, execution.stdout)
    if not right:
        output = kept_output(checker, execution.stdout)
        return Grade(Verdict.WRONG_ANSWER, difference, doubtful=late, output=output)
    if execution.cpu_s > limit_s:
        detail = f"{execution.cpu_s:.2f} s CPU (limit {limit_s:g} s)"
        return Grade(Verdict.TIME_LIMIT, detail, doubtful=True)
    return Grade(Verdict.ACCEPTED, doubtful=late)


def kept_output(checker: str, stdout: bytes) -> str:
    """Return the first MAX_OUTPUT_CHARS of an output, readable; of a call, of what it returned."""
    if checker in ("call", "assert"):
        text = shown_result(stdout, 2 * MAX_OUTPUT_CHARS)
    else:
        text = stdout[: 4 * MAX_OUTPUT_CHARS + 4].decode("utf-8", "replace")  # 4 bytes a character
    text = readable(without_addresses(text)[: MAX_OUTPUT_CHARS + 1])
    return text if len(text) <= MAX_OUTPUT_CHARS else text[: MAX_OUTPUT_CHARS - 1] + "…"


def _times(execution: Execution) -> str:
    text = f"{execution.cpu_s:.2f} s CPU, {execution.wall_s:.2f} s wall"
    if execution.lost_s < 0.01:
        return text
    return f"{text}, {execution.lost_s:.2f} s of it stopped or without a core"


def summarize(grades: Sequence[Grade], total: int, *, early_stop: bool) -> Summary:
    """Count grades in running order; with `early_stop`, up to the first failure.

    The verdict is that of the first failure, except that an INFRA_ERROR anywhere takes precedence.
    Missing tests without a failure are an INFRA_ERROR too, since the sandbox has lost them.
    """
    passed = run = 0
    failed: tuple[int, Grade] | None = None
    doubtful = by_wall_time = False
    ended = ""
    for position, grade in enumerate(grades):
        run += grade.verdict not in (Verdict.SYNTAX_ERROR, Verdict.INFRA_ERROR)
        passed += grade.verdict is Verdict.ACCEPTED
        doubtful = doubtful or grade.doubtful
        by_wall_time = by_wall_time or grade.by_wall_time
        ended = ended or grade.ended
        infra_error = grade.verdict is Verdict.INFRA_ERROR
        if grade.verdict is not Verdict.ACCEPTED and (failed is None or infra_error):
            failed = (position, grade)
        if failed is not None and (early_stop or infra_error):
            break
    if failed is None and len(grades) < total:
        failed = (len(grades), Grade(Verdict.INFRA_ERROR, "the sandbox left tests out"))
        doubtful = True
    if failed is None:
        return Summary(Verdict.ACCEPTED, passed, run, "", None, doubtful, by_wall_time)
    position, first = failed
    failed_position = None if first.verdict is Verdict.INFRA_ERROR else position
    raised = first.verdict in (Verdict.RUNTIME_ERROR, Verdict.SYNTAX_ERROR)
    return Summary(
        first.verdict,
        passed,
        run,
        "; ".join(filter(None, (first.detail, ended))),
        failed_position,
        doubtful,
        by_wall_time,
        output=first.output,
        exception=exception_text(first.detail) if raised else "",
    )


def judgement(
    problem: Problem,
    program: str,
    summary: Summary,
    test: int | None,
    *,
    cpu_s: float = 0.0,
    judge_version: str = "",
) -> Judgement:
    """Build the Judgement of a summary; `test` is the failed test's index in the problem."""
    detail = summary.detail.strip()
    compiled = summary.verdict is not Verdict.SYNTAX_ERROR
    if test is not None and compiled:
        detail = f"test {test}: {detail}" if detail else f"test {test}"
    detail = detail if len(detail) <= MAX_DETAIL_CHARS else "…" + detail[-MAX_DETAIL_CHARS:]
    return Judgement(
        verdict=summary.verdict,
        passed=summary.passed,
        total=len(problem.tests),
        run=summary.run,
        program=program,
        detail=readable(detail),
        problem_hash=problem.hash,
        by_wall_time=summary.by_wall_time,
        cpu_s=cpu_s,
        judge_version=judge_version,
        failed_test=test if compiled else None,
        output=summary.output,
        exception=summary.exception,
    )
