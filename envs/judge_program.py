"""Judge one program on one problem, and show each test.

    python -m envs.judge_program task=NAME problem=NAME FILE [split=SPLIT] [task.KEY=VALUE ...]
                                 [sandbox=auto|docker|embedded] [judge.KEY=VALUE ...]
                                 [feedback=true]

FILE is a program (.py) or a response with a code block (any other name; - for standard input).
`problem` may be a part of the name that no other problem has. Takes run.py's task arguments. All
tests run, also after a failed one, unless judge.early_stop=true; CPU s and wall s are a test's own.
The sandbox limits memory without reporting it. "in text" says whether the statement shows the test.

feedback=true runs only the tests that the statement shows, up to the first failed one, and prints
the observation that a model would read (task.feedback, task.feedback_prompt).

The exit status is 0 for an accepted program, 1 for any other, and 2 for a mistake.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt
from rich.console import Console
from rich.table import Table
from rich.text import Text

from envs.command_line import quiet_when_unread, wants_help
from envs.environment import Submission
from envs.feedback import Feedback
from envs.hidden_tests import shown_tests
from envs.judge.extract import MAX_RESPONSE_CHARS, as_response, extract_program
from envs.judge.grading import Grade, Summary
from envs.judge.judge import Judge
from envs.judge.session import JudgingSession, PendingProgram
from envs.problem import Judgement, Problem, Test, Verdict
from envs.readable import MAX_ERROR_CHARS, readable
from envs.sandbox.base import Execution, Job, KeepGoing, Outcome, Sandbox, SandboxError
from envs.sandbox.select import SandboxConfig, open_sandbox
from envs.show import find_problem
from envs.tasks.config import TaskConfig
from envs.validation.judge_arguments import SandboxKind, parse_judge_arguments

ACCEPTED, NOT_ACCEPTED, MISUSED, INTERRUPTED = 0, 1, 2, 130  # exit statuses
_KEPT_BYTES = 2_000  # of each output
_MAX_LISTED = 200  # tests in the table
_MAX_CHARS = 400  # of an input, an output or a message
_MAX_LINES = 10  # of an input or output
_MAX_STDERR_LINES = 5
_MAX_CELL_CHARS = 100  # of a text in the table


@dataclass
class Options:
    """The command's own options."""

    problem: str  # its name, or a part of it
    file: str  # a program (.py) or a response; `file=` may be left out
    split: Literal["train", "tune", "choose", "test"] | None = None  # only in this one
    sandbox: SandboxKind = "auto"  # auto: docker if it is there
    details: NonNegativeInt = 3  # tests to show at length: those that failed, else the first
    feedback: bool = False  # print what a model would read of the statement's tests instead


@dataclass(frozen=True)
class TestRun:
    """What became of one test. `execution` is None if the sandbox reported none."""

    __test__ = False  # keeps pytest from collecting this class

    number: int
    test: Test
    grade: Grade
    execution: Execution | None
    output: bytes  # its beginning

    @property
    def failed(self) -> bool:
        return self.grade.verdict is not Verdict.ACCEPTED


class Recorder(Sandbox):
    """A sandbox that keeps a program's executions by input, which the judge does not.

    Two tests with the same input have the same execution.
    """

    def __init__(self, sandbox: Sandbox, program: str) -> None:
        self.sandbox, self.program = sandbox, program
        self.name, self.strength = sandbox.name, sandbox.strength
        self.platform, self.takes_more = sandbox.platform, sandbox.takes_more
        self.found: dict[str | bytes, tuple[Execution, bytes]] = {}

    def run(
        self, jobs: Sequence[Job], keep_going: KeepGoing
    ) -> Iterator[tuple[int, list[Execution]]]:
        def record(index: int, position: int, execution: Execution) -> bool:
            if jobs[index].program == self.program:  # else a checker's
                output = execution.stdout[:_KEPT_BYTES]
                self.found[jobs[index].inputs[position]] = execution, output
            return keep_going(index, position, execution)

        return self.sandbox.run(jobs, record)

    def close(self) -> None:
        self.sandbox.close()


class _Session(JudgingSession):
    """A session that keeps the grades of the tests of its last program."""

    graded: Sequence[tuple[int, Grade]] = ()  # (number of the test, grade), in running order

    def _set_judgement(self, pending: PendingProgram, grades: list[Grade]) -> Summary:
        self.graded = list(zip(pending.order, grades, strict=False))
        return super()._set_judgement(pending, grades)


def judge_tests(
    problem: Problem, response: str, judge: Judge, recorder: Recorder
) -> tuple[Judgement, list[TestRun]]:
    """Judge a response as a run does; return the judgement and the tests that ran.

    `recorder` is the judge's sandbox. Raises ValueError for a problem that cannot be judged, and
    SandboxError.
    """
    with closing(_Session(judge)) as session:
        submission = Submission(problem, response)
        (_, judgement), *_ = [*session.judge([(0, submission)]), *session.finish()]
        graded = session.graded
    if judgement.verdict is Verdict.SYNTAX_ERROR:
        return judgement, []
    runs = []
    for number, grade in sorted(graded, key=lambda item: item[0]):
        test = problem.tests[number]
        execution, output = recorder.found.get(test.input, (None, b""))
        runs.append(TestRun(number, test, grade, execution, output))
    return judgement, runs


def read_response(file: str) -> str:
    """Return the response in a file or standard input. Raises ValueError or OSError."""
    if file == "-":
        text = sys.stdin.read(MAX_RESPONSE_CHARS + 1)
    else:
        with Path(file).open(encoding="utf-8") as opened:
            text = opened.read(MAX_RESPONSE_CHARS + 1)
    return as_response(text) if file.endswith(".py") else text


def show(
    problem: Problem, judgement: Judgement, runs: list[TestRun], details: int, console: Console
) -> None:
    """Print the verdict, a line for each test, and some tests at length."""
    passed = f"{judgement.passed} of {judgement.total} tests passed"
    console.print(f"[bold]{judgement.verdict}[/bold]  {passed}, {judgement.cpu_s:.2f} s of CPU")
    if not runs:
        console.print(_text(_tail(judgement.detail), _MAX_CHARS))
        return
    console.print(_table(runs[:_MAX_LISTED], shown_tests(problem)))
    failed = [run for run in runs if run.failed]
    counts = {
        "ran too": len(runs) - _MAX_LISTED,
        "did not run": judgement.total - len(runs),
        "failed too (details=N shows N)": len(failed) - details,
    }
    for run in (failed or runs)[:details]:
        _show_test(run, console)
    for what, count in counts.items():
        if count > 0:
            console.print(f"{count} more {what}")


def _facts(problem: Problem, judge: Judge, file: str, program: str | None) -> Table:
    """What is judged, and how. Raises ValueError for a problem that cannot be judged."""
    judge.require_judgeable(problem)
    planned = judge.plan(0, problem, program or "")
    limits, checker = planned.job.limits, problem.checker_program
    return _pairs(
        {
            "problem": problem.name,
            "function": problem.fn_name or "",
            "checker": problem.checker + (f", in {checker.language}" if checker else ""),
            "limits": f"{planned.limit_s:g} s of CPU, {limits.wall_s:g} s of wall time, "
            f"{limits.memory_mb} MiB of memory, {limits.output_mb} MiB of output",
            "sandbox": f"{judge.sandbox.name}, {judge.sandbox.strength}",
            "program": f"{file}, {len((program or '').splitlines())} lines",
        }
    )


def _table(runs: list[TestRun], shown: list[Test]) -> Table:
    table = Table("test", "verdict", "CPU s", "wall s", "in text", box=None, expand=True)
    for name in ("input", "expected", "got"):
        table.add_column(name, ratio=1, no_wrap=True, overflow="ellipsis")
    for run in runs:
        times = ("–", "–")
        if run.execution:
            times = (f"{run.execution.cpu_s:.3f}", f"{run.execution.wall_s:.3f}")
        texts = (run.test.input, run.test.output, run.output.decode("utf-8", "replace"))
        facts = (str(run.number), run.grade.verdict, *times, "yes" if run.test in shown else "no")
        table.add_row(*facts, *map(_cell, texts), style="bold" if run.failed else "")
    return table


def _show_test(run: TestRun, console: Console) -> None:
    execution = run.execution or Execution(Outcome.INFRA_ERROR)
    reason = "" if run.grade.detail == execution.stderr else run.grade.detail
    texts = {
        "reason": "; ".join(filter(None, (reason, run.grade.ended))),
        "exit": _exit(execution.exit_code),
        "input": _head(run.test.input),
        "expected": _head(run.test.output),
        "got": _head(run.output.decode("utf-8", "replace")) or "nothing",
        "stderr": _tail(execution.stderr),
    }
    console.print(f"\n[bold]test {run.number}: {run.grade.verdict}[/bold]")
    console.print(_pairs(texts))


def _exit(code: int | None) -> str:
    if not code:
        return ""
    return f"status {code}" if code > 0 else f"by signal {-code}"


def _pairs(texts: dict[str, str]) -> Table:
    table = Table(box=None, show_header=False)
    table.add_column(justify="right")
    for name, text in texts.items():
        if text:
            table.add_row(name, _text(text, _MAX_CHARS))
    return table


def _head(text: str) -> str:
    """The first lines of a text, and how many follow."""
    lines = text.rstrip("\n").split("\n")
    rest = [f"… ({len(lines)} lines)"] if len(lines) > _MAX_LINES else []
    return "\n".join(lines[:_MAX_LINES] + rest)


def _tail(text: str) -> str:
    """The last lines of a text, of which the last characters say most."""
    lines = text.strip("\n").split("\n")[-_MAX_STDERR_LINES:]
    return "\n".join(lines)[-_MAX_CHARS:]


def _cell(text: str) -> Text:
    return _text(" ⏎ ".join(text[:_MAX_CELL_CHARS].strip("\n").split("\n")), _MAX_CELL_CHARS)


def _text(text: str, most: int) -> Text:
    return Text(readable(text, most).replace("\t", "    "))


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status; a mistake is one line."""
    console = Console(highlight=False)
    try:
        arguments = _with_file(sys.argv[1:] if argv is None else argv)
        task, options, config = parse_judge_arguments(
            Options, arguments, judge_defaults=["early_stop=false"]
        )
        response = read_response(options.file)
        problem, _ = find_problem(task, options.problem, options.split)
        with open_sandbox(SandboxConfig(kind=options.sandbox)) as sandbox:
            program = extract_program(response)
            if options.feedback:
                judge = Judge(sandbox, replace(config, early_stop=True))
                return _show_feedback(problem, response, judge, task, console)
            recorder = Recorder(sandbox, program or "")
            judge = Judge(recorder, config)
            console.print(_facts(problem, judge, options.file, program))
            judgement, runs = judge_tests(problem, response, judge, recorder)
    except (OSError, ValueError, SandboxError) as error:
        print(f"judge_program: {readable(_message(error), MAX_ERROR_CHARS)}", file=sys.stderr)
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    show(problem, judgement, runs, options.details, console)
    return ACCEPTED if judgement.verdict is Verdict.ACCEPTED else NOT_ACCEPTED


def _show_feedback(
    problem: Problem, response: str, judge: Judge, task: TaskConfig, console: Console
) -> int:
    """Print the observation on a response; return the exit status. Raises like `judge_tests`."""
    if task.feedback == "foreign":
        raise ValueError(
            "task.feedback=foreign with feedback=true: it shows what is said of another problem's "
            "program, and here is one program; leave task.feedback out"
        )
    template = Path(task.feedback_prompt) if task.feedback_prompt else None
    feedback = Feedback(task.feedback, template)
    public = feedback.public(problem)
    if public is None:
        raise ValueError(f"feedback=true: the statement of {problem.name} shows none of its tests")
    (judgement,) = judge.judge([Submission(public, response)])
    if judgement.verdict is Verdict.ACCEPTED:
        console.print(f"passes all tests that the statement shows: {len(public.tests)}")
        return ACCEPTED
    if judgement.verdict is Verdict.INFRA_ERROR:
        raise ValueError(f"the judge failed: {judgement.detail}")
    print(readable(feedback.observation(problem, judgement)))  # as it is: no line is wrapped
    return NOT_ACCEPTED


def _with_file(argv: Sequence[str]) -> list[str]:
    """Spell out FILE, the argument that is no key=value, as file=FILE. Raises ValueError."""
    bare = [word for word in argv if word == "-" or not (word[:1] == "-" or "=" in word)]
    if len(bare) > 1 and not wants_help(argv):
        raise ValueError(f"{' and '.join(bare[:2])}: give one FILE; options are key=value")
    return [f"file={word}" if word in bare and not wants_help([word]) else word for word in argv]


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, UnicodeDecodeError):
        return "the program is not UTF-8 text"
    return str(error)


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main())
