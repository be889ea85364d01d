"""Judge a data set's own right and wrong programs: a test of the judge, and of the data.

    python -m envs.validate task=taco|code_contests|apps task.path=FILE
                            [sandbox=auto|docker|embedded] [first=N] [out=FILE]

Problems marked `needs_checker` are compared all the same and reported apart: equal output proves
an answer right there, other output proves nothing.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from envs.extract import as_response
from envs.judge import Judge, Submission
from envs.problem import Judgement, Problem, Verdict
from envs.sandbox.base import SandboxError
from envs.sandbox.select import SandboxConfig, open_sandbox
from envs.tasks.rows import TASKS, load
from envs.tasks.special_judge import comparing_checker

KINDS = ("solution", "incorrect")
SANDBOXES = ("auto", "docker", "embedded")
_LISTED_EXCEPTIONS = 40
_BATCH = 1000  # programs whose judgements are held before their lines are written


class UsageError(ValueError):
    """An argument that cannot be used; one line that names it and what would be right."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the command line asks for."""

    task: str  # whose schema the rows have: a key of TASKS
    path: Path  # .jsonl or .parquet
    sandbox: str = "auto"  # one of SANDBOXES
    first: int | None = None  # judge only the first N programs of each kind of every row
    out: Path | None = None  # JSON lines, one a program


@dataclass(frozen=True, slots=True)
class Entry:
    """One program of the data set. `marked`: its problem needs a checker of its own."""

    problem: Problem
    kind: str  # one of KINDS
    index: int  # among the row's programs of this kind
    program: str
    marked: bool


@dataclass
class Report:
    """What was found. Counts are of programs, by (kind, marked) and verdict."""

    verdicts: Counter[tuple[str, bool, Verdict]] = field(default_factory=Counter)
    exceptions: list[str] = field(default_factory=list)  # unmarked, and not as the data set says

    def add(self, entry: Entry, judgement: Judgement) -> None:
        """Count one program; an INFRA_ERROR is an exception whatever the data set says."""
        self.verdicts[entry.kind, entry.marked, judgement.verdict] += 1
        accepted = judgement.verdict is Verdict.ACCEPTED
        as_said = accepted == (entry.kind == "solution")
        if judgement.verdict is Verdict.INFRA_ERROR or not (as_said or entry.marked):
            why = (judgement.detail.splitlines() or [""])[-1]
            name = f"{entry.problem.name} {entry.kind} {entry.index}"
            self.exceptions.append(f"{name}: {judgement.verdict} {why}")

    @property
    def infra_errors(self) -> int:
        """Programs without a verdict."""
        return sum(n for (_, _, verdict), n in self.verdicts.items() if verdict == "INFRA_ERROR")


def parse(argv: Sequence[str]) -> Arguments:
    """Read `key=value` arguments. Raises UsageError."""
    known = ("task", "task.path", "sandbox", "first", "out")
    given: dict[str, str] = {}
    for argument in argv:
        key, equals, value = argument.partition("=")
        if not equals or key not in known or not value:
            raise UsageError(f"{argument!r}: write key=value, with a key of {', '.join(known)}")
        given[key] = value
    task, path = given.get("task"), given.get("task.path")
    if task not in TASKS:
        raise UsageError(f"task={task or ''}: must be one of {', '.join(TASKS)}")
    if path is None:
        raise UsageError("task.path=FILE is missing: the rows to judge, .jsonl or .parquet")
    sandbox = given.get("sandbox", "auto")
    if sandbox not in SANDBOXES:
        raise UsageError(f"sandbox={sandbox}: must be one of {', '.join(SANDBOXES)}")
    first = given.get("first")
    if first is not None and not (first.isdecimal() and int(first) > 0):
        raise UsageError(f"first={first}: must be a whole number above 0")
    out = given.get("out")
    return Arguments(task, Path(path), sandbox, int(first) if first else None, out and Path(out))


def entries(problems: Sequence[Problem], first: int | None) -> Iterator[Entry]:
    """The programs of the problems, in order: at most `first` right and `first` wrong ones each."""
    for problem in problems:
        marked = problem.checker == "needs_checker"
        if marked:
            checker = "call" if problem.fn_name else None
            checker = checker or comparing_checker(problem.statement, problem.tests)
            problem = replace(problem, checker=checker)
        for kind, programs in zip(
            KINDS, (problem.solutions, problem.incorrect_solutions), strict=True
        ):
            for index, program in enumerate(programs[:first]):
                yield Entry(problem, kind, index, program, marked)


def validate(
    judge: Judge, programs: Sequence[Entry], console: Console, out: TextIO | None
) -> Report:
    """Judge all programs, write a JSON line for each in their order, show progress."""
    report = Report()
    columns = (TextColumn("judging"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("judging", total=len(programs))
        for start in range(0, len(programs), _BATCH):
            batch = programs[start : start + _BATCH]
            submissions = [Submission(entry.problem, as_response(entry.program)) for entry in batch]
            judgements: dict[int, Judgement] = {}
            for index, judgement in judge.as_judged(submissions):
                judgements[index] = judgement
                progress.advance(bar)
            for index, entry in enumerate(batch):
                report.add(entry, judgements[index])
                if out is not None:
                    out.write(_json_line(entry, judgements[index]) + "\n")
    return report


def _json_line(entry: Entry, judgement: Judgement) -> str:
    return json.dumps(
        {
            "problem": entry.problem.name,
            "kind": entry.kind,
            "index": entry.index,
            "verdict": judgement.verdict,
            "passed": judgement.passed,
            "total": judgement.total,
            "cpu_s": round(judgement.cpu_s, 4),
            "needs_checker": entry.marked,
            "detail": judgement.detail,
        }
    )


def show(report: Report, skipped: Counter[str], console: Console) -> None:
    """Print the tables of counts, of reasons, and the exceptions by name."""
    table = Table("programs", "judged", "accepted", "rejected", "reasons")
    for kind in KINDS:
        for marked in (False, True):
            found = {v: n for (k, m, v), n in report.verdicts.items() if (k, m) == (kind, marked)}
            if found:
                label = "right" if kind == "solution" else "wrong"
                total, accepted = sum(found.values()), found.pop(Verdict.ACCEPTED, 0)
                reasons = ", ".join(f"{verdict} {n}" for verdict, n in sorted(found.items()))
                label += " (problem needs a checker)" if marked else ""
                table.add_row(label, str(total), str(accepted), str(total - accepted), reasons)
    console.print(table)
    for reason, count in sorted(skipped.items()):
        console.print(f"rows skipped, {reason}: {count}")
    if report.exceptions:
        console.print(f"not as the data set says: {len(report.exceptions)}")
    for line in report.exceptions[:_LISTED_EXCEPTIONS]:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def run(arguments: Arguments, console: Console) -> Report:
    """Load, judge, write, show. Raises OSError, ValueError and SandboxError."""
    problems, skipped = load(arguments.task, arguments.path)
    programs = list(entries(problems, arguments.first))
    out = arguments.out.open("w", encoding="utf-8") if arguments.out else None
    try:
        with open_sandbox(SandboxConfig(kind=arguments.sandbox)) as sandbox:
            console.print(f"{len(problems)} problems, {len(programs)} programs; {sandbox.strength}")
            judge = Judge(sandbox)
            started = time.perf_counter()
            report = validate(judge, programs, console, out)
            wall_s = time.perf_counter() - started
    finally:
        if out is not None:
            out.close()
    show(report, skipped, console)
    stats = judge.stats
    console.print(
        f"{len(programs) / max(wall_s, 1e-9):.1f} programs/s, {stats.tests_run} tests in "
        f"{wall_s:.1f} s, {stats.cpu_s:.1f} s CPU; judge {judge.version}, sandbox {sandbox.name}"
    )
    return report


def main(argv: Sequence[str] | None = None) -> int:
    """0: every program has a verdict; 1: some have none; 2: nothing could be judged."""
    console = Console()
    try:
        report = run(parse(sys.argv[1:] if argv is None else argv), console)
    except (UsageError, OSError, ValueError, SandboxError) as error:
        print(f"validate: {error}", file=sys.stderr)
        return 2
    return 1 if report.infra_errors else 0


if __name__ == "__main__":
    sys.exit(main())
