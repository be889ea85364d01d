"""Judge a data set's own right and wrong programs: a test of the judge and of the data.

    python -m envs.validate task=NAME [task.path=PATH] [task.KEY=VALUE ...] [first=N]
                            [sandbox=auto|docker|embedded] [out=FILE.jsonl]
                            [quality=FILE.parquet|FILE.csv]

Takes run.py's task arguments, but by default keeps all tests of a problem, and reads all splits of
task.path whole. task.filter and task.quality apply. With `out`, the same command resumes where it
was interrupted. `quality` writes a table for task.quality.

Disagreements are listed and leave the exit status 0: data sets hold wrongly labelled programs.

Problems marked `needs_checker` are compared too, and reported apart: for them equal output proves
an answer right, but different output proves nothing.
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
from envs.tasks.selection import Entry, Filter, StoredProblems, load_entries
from envs.tasks.storage.rows import load_converter
from envs.tasks.storage.sources import find_sources
from envs.tasks.storage.store import Store, prepare_store
from envs.tasks.storage.test_limits import SizeLimits
from envs.tasks.task_cli import parse_task_arguments

KINDS = ("solution", "incorrect")
_MAX_LISTED = 40  # exceptions
_BATCH = 1000  # programs read at once
_ALL_TESTS = ("++task.max_tests=1000000000", "++task.max_test_bytes=1000000000000")


def _check_suffix(path: Path) -> Path:
    if path.suffix not in SUFFIXES:
        raise ValueError(f"it must end in {' or '.join(SUFFIXES)}")
    return path


@dataclass
class Options:
    """The command's own options."""

    sandbox: Literal["auto", "docker", "embedded"] = "auto"
    first: PositiveInt | None = None  # only the first N right and N wrong programs of every row
    out: Path | None = None  # JSON lines, one per program
    quality: Annotated[Path, AfterValidator(_check_suffix)] | None = (
        None  # a table, one row per problem
    )


@dataclass(frozen=True, slots=True)
class LabelledProgram:
    """One program of the data set, and whether the data set calls it right or wrong."""

    problem: Problem
    kind: str  # one of KINDS
    index: int  # among the row's programs of this kind
    program: str
    needs_checker: bool  # the problem accepts several answers


@dataclass
class Report:
    """Counts of programs by (kind, needs_checker, verdict), and the disagreements."""

    verdicts: Counter[tuple[str, bool, Verdict]] = field(default_factory=Counter)
    exceptions: list[str] = field(default_factory=list)  # verdicts against the data set's label

    def add(self, labelled: LabelledProgram, judgement: Judgement) -> None:
        """Count one program. An INFRA_ERROR is always an exception."""
        self.verdicts[labelled.kind, labelled.needs_checker, judgement.verdict] += 1
        accepted = judgement.verdict is Verdict.ACCEPTED
        agrees = accepted == (labelled.kind == "solution")
        if judgement.verdict is Verdict.INFRA_ERROR or not (agrees or labelled.needs_checker):
            reason = (judgement.detail.splitlines() or [""])[-1]
            name = f"{labelled.problem.name} {labelled.kind} {labelled.index}"
            self.exceptions.append(f"{name}: {judgement.verdict} {reason}")

    @property
    def infra_errors(self) -> int:
        """Number of programs without a verdict."""
        return sum(n for (_, _, verdict), n in self.verdicts.items() if verdict == "INFRA_ERROR")


def parse(argv: Sequence[str]) -> tuple[TaskConfig, Options]:
    """Parse key=value arguments. Raises ValueError in one line."""
    task, options = parse_task_arguments(Options, [*_ALL_TESTS, *argv])
    if task.rows is None:
        raise ValueError(f"task={task.name} reads no rows; choose a data set, such as task=taco")
    if task.environment is not None:
        raise ValueError(f"task.environment={task.environment}: its responses are no programs")
    return task, options


def labelled_programs(problems: Iterable[Problem], first: int | None) -> Iterator[LabelledProgram]:
    """Yield the problems' programs in order: at most `first` right and `first` wrong ones each."""
    for problem in problems:
        needs_checker = problem.checker == "needs_checker"
        if needs_checker:
            checker = "call" if problem.fn_name else None
            checker = checker or comparing_checker(problem.statement, problem.tests)
            problem = replace(problem, checker=checker)
        for kind, programs in zip(
            KINDS, (problem.solutions, problem.incorrect_solutions), strict=True
        ):
            for index, program in enumerate(programs[:first]):
                yield LabelledProgram(problem, kind, index, program, needs_checker)


def validate(
    judge: Judge,
    programs: Iterator[LabelledProgram],
    total: int,
    console: Console,
    verdict_log: VerdictLog,
    qualities: ProblemQualities,
) -> Report:
    """Judge all programs that are not in the verdict log, and show progress."""
    report = Report()

    def count(labelled: LabelledProgram, judgement: Judgement) -> None:
        report.add(labelled, judgement)
        right = labelled.kind == "solution"
        qualities.add(labelled.problem, right, labelled.needs_checker, judgement)
        progress.advance(bar)

    columns = (TextColumn("judging"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("judging", total=total)
        while batch := list(itertools.islice(programs, _BATCH)):
            fresh: list[LabelledProgram] = []
            for labelled in batch:
                logged = verdict_log.get(labelled.problem, labelled.kind, labelled.program)
                if logged is None:
                    fresh.append(labelled)
                else:
                    count(labelled, logged)
            submissions = [Submission(one.problem, as_response(one.program)) for one in fresh]
            for number, judgement in judge.iter_judgements(submissions):
                labelled = fresh[number]
                verdict_log.add(
                    labelled.problem,
                    labelled.kind,
                    labelled.index,
                    labelled.program,
                    labelled.needs_checker,
                    judgement,
                )
                count(labelled, judgement)
    return report


def show(report: Report, skipped: Counter[str], console: Console) -> None:
    """Print the counts, the reasons for skipped rows, and the exceptions by name."""
    table = Table("programs", "judged", "accepted", "rejected", "reasons")
    for kind in KINDS:
        for needs_checker in (False, True):
            counts = {
                verdict: count
                for (*group, verdict), count in report.verdicts.items()
                if group == [kind, needs_checker]
            }
            if counts:
                label = "right" if kind == "solution" else "wrong"
                total, accepted = sum(counts.values()), counts.pop(Verdict.ACCEPTED, 0)
                reasons = ", ".join(f"{verdict} {n}" for verdict, n in sorted(counts.items()))
                label += " (problem needs a checker)" if needs_checker else ""
                table.add_row(label, str(total), str(accepted), str(total - accepted), reasons)
    console.print(table)
    for reason, count in sorted(skipped.items()):
        console.print(f"rows skipped, {reason}: {count}")
    if report.exceptions:
        console.print(f"not as the data set says: {len(report.exceptions)}")
    for line in report.exceptions[:_MAX_LISTED]:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def run(task: TaskConfig, options: Options, console: Console) -> Report:
    """Load, judge, write and show. Raises OSError, ValueError and SandboxError."""
    stores = _stores(task)
    skipped: Counter[str] = sum((store.skipped for store in stores), Counter())
    problems = _matching_problems(task, stores, skipped)
    total = sum(_program_count(entry, options.first) for entry in problems.entries)
    qualities = ProblemQualities()
    with open_sandbox(SandboxConfig(kind=options.sandbox)) as sandbox:
        console.print(f"{len(problems)} problems, {total} programs; {sandbox.strength}")
        judge = Judge(sandbox)
        started = time.perf_counter()
        with VerdictLog(options.out, judge.version) as verdict_log:
            programs = labelled_programs(problems, options.first)
            report = validate(judge, programs, total, console, verdict_log, qualities)
        wall_s = time.perf_counter() - started
    if options.quality:
        qualities.write(options.quality)
    show(report, skipped, console)
    if not report.verdicts:
        reason = "the problems have no programs" if problems else "no row gave a problem"
        console.print(f"nothing was judged: {reason}")
    stats = judge.stats
    console.print(
        f"{stats.submissions / max(wall_s, 1e-9):.1f} programs/s, {stats.tests_run} tests in "
        f"{wall_s:.1f} s, {stats.cpu_s:.1f} s CPU; judge {judge.version}, sandbox {sandbox.name}"
    )
    if logged := total - stats.submissions:
        console.print(f"{logged} verdicts were known from {options.out}")
    return report


def _stores(config: TaskConfig) -> list[Store]:
    if config.path is None:
        raise ValueError("task.path=PATH is missing: the rows to judge")
    limits = SizeLimits(config.max_tests, config.max_test_bytes)
    to_problem = load_converter(config.rows, config.fields, "task.rows")
    splits = find_sources(to_problem, config.path, "task.path", config.files)
    return [prepare_store(source, limits) for sources in splits.values() for source in sources]


def _matching_problems(
    config: TaskConfig, stores: Sequence[Store], skipped: Counter[str]
) -> StoredProblems:
    """Return the problems that task.filter and task.quality keep; count the others in `skipped`."""
    matches = Filter(config.filter, config.quality)
    entries = []
    for entry in load_entries(stores, alone=len(stores) == 1):
        if reason := matches.mismatch(entry):
            skipped[reason] += 1
        else:
            entries.append(entry)
    return StoredProblems(entries)


def _program_count(entry: Entry, first: int | None) -> int:
    """Count a problem's programs: at most `first` of each kind."""
    columns = ("solutions", "incorrect_solutions")
    lengths = [len(entry.batch.column(column)[entry.row]) for column in columns]
    return sum(length if first is None else min(length, first) for length in lengths)


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status.

    0: every program has a verdict; 1: one has none, or nothing was judged; 2: a one-line error;
    130: interrupted.
    """
    console = Console()
    try:
        report = run(*parse(sys.argv[1:] if argv is None else argv), console)
    except (OSError, ValueError, SandboxError) as error:
        print(f"validate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("validate: interrupted; with the same out=FILE it resumes from here", file=sys.stderr)
        return 130
    return 1 if report.infra_errors or not report.verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
