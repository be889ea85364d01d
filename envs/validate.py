"""Judge a data set's own right and wrong programs: a test of the judge, and of the data.

    python -m envs.validate task=NAME [task.path=PATH] [task.KEY=VALUE ...] [first=N]
                            [sandbox=auto|docker|embedded] [out=FILE.jsonl]
                            [quality=FILE.parquet|FILE.csv]

Takes run.py's task arguments, but keeps all tests of a problem unless told otherwise. With `out`,
the same command goes on where it was interrupted. What `quality` says of each problem is for
task.quality.

Problems marked `needs_checker` are compared all the same and reported apart: equal output proves
an answer right there, other output proves nothing.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, PositiveInt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from envs.environment import Submission
from envs.judge.extract import as_response
from envs.judge.judge import Judge
from envs.judge.verdict_log import VerdictLog
from envs.problem import Judgement, Problem, Verdict
from envs.problem_quality import SUFFIXES, ProblemQualities
from envs.sandbox.base import SandboxError
from envs.sandbox.select import SandboxConfig, open_sandbox
from envs.tasks.config import TaskConfig
from envs.tasks.loaders.special_judge import comparing_checker
from envs.tasks.selection import StoredProblems, load_entries
from envs.tasks.storage.rows import converter
from envs.tasks.storage.sources import find
from envs.tasks.storage.store import Store, prepare
from envs.tasks.storage.test_limits import Limits
from envs.tasks.task_cli import parse_task_arguments

KINDS = ("solution", "incorrect")
_LISTED_EXCEPTIONS = 40
_BATCH = 1000  # programs that are read at once
_ALL_TESTS = ("++task.max_tests=1000000000", "++task.max_test_bytes=1000000000000")


def _table(path: Path) -> Path:
    if path.suffix not in SUFFIXES:
        raise ValueError(f"it must end in {' or '.join(SUFFIXES)}")
    return path


@dataclass
class Options:
    """What the command line asks for besides the task."""

    sandbox: Literal["auto", "docker", "embedded"] = "auto"
    first: PositiveInt | None = None  # judge only the first N programs of each kind of every row
    out: Path | None = None  # JSON lines, one a program
    quality: Annotated[Path, AfterValidator(_table)] | None = None  # a table, one row a problem


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


def parse(argv: Sequence[str]) -> tuple[TaskConfig, Options]:
    """Read `key=value` options. Raises ValueError, one line."""
    task, options = parse_task_arguments(Options, [*_ALL_TESTS, *argv])
    if task.rows is None:
        raise ValueError(f"task={task.name} reads no rows; choose a data set, such as task=taco")
    if task.environment is not None:
        raise ValueError(f"task.environment={task.environment}: its responses are no programs")
    return task, options


def entries(problems: Iterable[Problem], first: int | None) -> Iterator[Entry]:
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
    judge: Judge,
    programs: Iterator[Entry],
    total: int,
    console: Console,
    journal: VerdictLog,
    qualities: ProblemQualities,
) -> Report:
    """Judge all programs that the journal does not know, show progress."""
    report = Report()

    def take(entry: Entry, said: Judgement) -> None:
        report.add(entry, said)
        qualities.add(entry.problem, entry.kind == "solution", entry.marked, said)
        progress.advance(bar)

    columns = (TextColumn("judging"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("judging", total=total)
        while batch := list(itertools.islice(programs, _BATCH)):
            known = [journal.known(entry.problem, entry.kind, entry.program) for entry in batch]
            for entry, said in zip(batch, known, strict=True):
                if said is not None:
                    take(entry, said)
            fresh = [entry for entry, said in zip(batch, known, strict=True) if said is None]
            submissions = [Submission(entry.problem, as_response(entry.program)) for entry in fresh]
            for index, said in judge.iter_judgements(submissions):
                entry = fresh[index]
                journal.add(
                    entry.problem, entry.kind, entry.index, entry.program, entry.marked, said
                )
                take(entry, said)
    return report


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


def run(task: TaskConfig, options: Options, console: Console) -> Report:
    """Load, judge, write, show. Raises OSError, ValueError and SandboxError."""
    stores = _stores(task)
    problems = StoredProblems(load_entries(stores, alone=len(stores) == 1))
    total = sum(_count(store, options.first) for store in stores)
    qualities = ProblemQualities()
    with open_sandbox(SandboxConfig(kind=options.sandbox)) as sandbox:
        console.print(f"{len(problems)} problems, {total} programs; {sandbox.strength}")
        judge = Judge(sandbox)
        started = time.perf_counter()
        with VerdictLog(options.out, judge.version) as journal:
            programs = entries(problems, options.first)
            report = validate(judge, programs, total, console, journal, qualities)
        wall_s = time.perf_counter() - started
    if options.quality:
        qualities.write(options.quality)
    show(report, sum((store.skipped for store in stores), Counter()), console)
    stats = judge.stats
    console.print(
        f"{stats.submissions / max(wall_s, 1e-9):.1f} programs/s, {stats.tests_run} tests in "
        f"{wall_s:.1f} s, {stats.cpu_s:.1f} s CPU; judge {judge.version}, sandbox {sandbox.name}"
    )
    if known := total - stats.submissions:
        console.print(f"{known} verdicts were known from {options.out}")
    return report


def _stores(config: TaskConfig) -> list[Store]:
    if config.path is None:
        raise ValueError("task.path=PATH is missing: the rows to judge")
    limits = Limits(config.max_tests, config.max_test_bytes)
    found = find(
        converter(config.rows, config.fields, "task.rows"), config.path, "task.path", config.files
    )
    return [prepare(source, limits) for sources in found.values() for source in sources]


def _count(store: Store, first: int | None) -> int:
    """Programs of a store, at most `first` of each kind of a row."""
    columns = ("solutions", "incorrect_solutions")
    lengths = [
        length
        for batch in store.batches
        for column in columns
        for length in batch.column(column).value_lengths().to_pylist()
    ]
    return sum(length if first is None else min(length, first) for length in lengths)


def main(argv: Sequence[str] | None = None) -> int:
    """0: every program has a verdict; 1: some have none; 2: none could be judged; 130: stopped."""
    console = Console()
    try:
        report = run(*parse(sys.argv[1:] if argv is None else argv), console)
    except (OSError, ValueError, SandboxError) as error:
        print(f"validate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("validate: interrupted; with the same out=FILE it goes on from here", file=sys.stderr)
        return 130
    return 1 if report.infra_errors else 0


if __name__ == "__main__":
    sys.exit(main())
