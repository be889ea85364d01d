"""Judge a data set's own right and wrong programs: a test of the judge and of the data.

    python -m envs.validate task=NAME [task.path=PATH] [task.KEY=VALUE ...] [first=N]
                            [sandbox=auto|docker|embedded] [judge.KEY=VALUE ...]
                            [cheap=false] [out=FILE.jsonl] [quality=FILE.parquet|FILE.csv]

Takes run.py's task arguments, but by default keeps all tests of a problem, and reads all splits of
task.path whole. The keys that choose problems apply. With `out`, the same command resumes where it
was interrupted. `quality` writes a table for task.quality.

Programs that solve nothing (envs/cheap_programs.py) are run too, and the problems that accept
one are listed; cheap=false leaves them out. The judge's error rates are kept in the cache folder,
where a run with the same judge and problems finds them.

Signs that an unmarked problem has several right answers are listed with their evidence
(envs/validation/several_answers.py).

Disagreements are listed and leave the exit status 0: data sets hold wrongly labelled programs. The
last line says how many of the right ones failed.

Problems marked `needs_checker` are compared too, and reported apart: for them equal output proves
an answer right, but different output proves nothing.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, PositiveInt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from envs.cheap_programs import CHEAP_PROGRAMS
from envs.command_line import quiet_when_unread
from envs.environment import Submission
from envs.judge.extract import as_response
from envs.judge.judge import Judge, JudgeConfig
from envs.judge.verdict_log import VerdictLog
from envs.problem import Judgement, Problem
from envs.readable import MAX_ERROR_CHARS, readable
from envs.sandbox.base import SandboxError
from envs.sandbox.select import SandboxConfig, open_sandbox
from envs.tasks import open_task
from envs.tasks.config import TaskConfig
from envs.tasks.dataset_task import required_path
from envs.tasks.first_rows import first_row_hints
from envs.tasks.row_selection import RowSelection
from envs.tasks.selection import Filter, StoredProblems, load_entries, strengths
from envs.tasks.storage.rows import load_converter
from envs.tasks.storage.sources import find_sources, of_one_data_set
from envs.tasks.storage.store import Store, prepare_store
from envs.tasks.storage.test_limits import SizeLimits
from envs.validation.judge_arguments import SandboxKind, parse_judge_arguments
from envs.validation.judge_errors import keep_counts, total_rates
from envs.validation.labelled_programs import (
    CHEAP,
    LabelledProgram,
    count_cheap,
    count_programs,
    labelled_programs,
)
from envs.validation.problem_quality import SUFFIXES, ProblemQualities
from envs.validation.validation_report import Report, rejected_line, show

_BATCH = 1000  # programs read at once
_ALL_TESTS = ("++task.max_tests=1000000000", "++task.max_test_bytes=1000000000000")


def _check_table(path: Path) -> Path:
    if path.suffix not in SUFFIXES:
        raise ValueError(f"it must end in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():  # judging may take hours
        raise ValueError(f"there is no folder {path.parent}")
    return path


@dataclass
class Options:
    """The command's own options."""

    sandbox: SandboxKind = "auto"  # auto: docker if it is there
    cheap: bool = True  # also run the programs that solve nothing
    first: PositiveInt | None = None  # only the first N right and N wrong programs of every row
    out: Path | None = None  # file for JSON lines, one per program
    # file for a table, one row per problem
    quality: Annotated[Path, AfterValidator(_check_table)] | None = None


def parse(argv: Sequence[str]) -> tuple[TaskConfig, Options, JudgeConfig]:
    """Parse key=value arguments. Raises ValueError in one line."""
    return parse_judge_arguments(Options, argv, task_defaults=_ALL_TESTS)


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
        about = (labelled.digest, labelled.strength, labelled.needs_checker)
        quality = qualities.row(labelled.problem, *about)
        if labelled.kind == CHEAP:
            quality.count_cheap(CHEAP_PROGRAMS[labelled.index], judgement)
        else:
            quality.count(labelled.kind == "solution", judgement)
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


def run(task: TaskConfig, options: Options, config: JudgeConfig, console: Console) -> Report:
    """Load, judge, write and show. Raises OSError, ValueError and SandboxError."""
    skipped: Counter[str] = Counter()
    problems = load_problems(task, skipped)
    own = count_programs(problems, options.first)
    cheap = count_cheap(strengths(problems)) if options.cheap else 0
    qualities = ProblemQualities()
    with open_sandbox(SandboxConfig(kind=options.sandbox)) as sandbox:
        counts = f"{len(problems)} problems, {own} programs" + f" and {cheap} cheap ones" * (
            cheap > 0
        )
        console.print(f"{counts}; {sandbox.strength}")
        judge = Judge(sandbox, config)
        started = time.perf_counter()
        with VerdictLog(options.out, judge.version) as verdict_log:
            programs = labelled_programs(problems, options.first, options.cheap)
            report = validate(judge, programs, own + cheap, console, verdict_log, qualities)
        wall_s = time.perf_counter() - started
    if options.quality:
        qualities.write(options.quality)
    by_mark = {mark: qualities.program_counts(mark) for mark in (False, True)}
    keep_counts(by_mark[False], judge.version)
    rates = {mark: total_rates(len(found), found.values()) for mark, found in by_mark.items()}
    show(report, rates, skipped, console)
    if not report.verdicts:
        reason = "the problems have no programs" if problems else "no row gave a problem"
        console.print(f"nothing was judged: {reason}")
    stats = judge.stats
    console.print(
        f"{stats.submissions / max(wall_s, 1e-9):.1f} programs/s, {stats.tests_run} tests in "
        f"{wall_s:.1f} s, {stats.cpu_s:.1f} s CPU; judge {judge.version}, sandbox {sandbox.name}"
    )
    for hint in first_row_hints(task):
        console.print(f"NOTE: {readable(hint)}", markup=False, soft_wrap=True)
    if logged := own + cheap - stats.submissions:
        console.print(f"{logged} verdicts were known from {options.out}")
    if line := rejected_line(report):
        console.print(line, soft_wrap=True)
    return report


def load_problems(config: TaskConfig, skipped: Counter[str]) -> Sequence[Problem]:
    """Return all problems of all splits; count the rows without one, by reason, in `skipped`.

    The reason says where the first such row of a file stands.
    """
    if config.rows is None:
        splits = open_task(config).splits().values()
        return [problem for problems in splits for problem in problems]
    stores = _stores(config)
    for store in stores:
        for reason, count in store.skipped.items():
            skipped[f"{reason} (first: {store.first_skipped[reason]})"] += count
    return _matching_problems(config, stores, skipped)


def _stores(config: TaskConfig) -> list[Store]:
    limits = SizeLimits(config.max_tests, config.max_test_bytes)
    to_problem = load_converter(config.rows, config.fields, "task.rows")
    found = find_sources(to_problem, required_path(config), "task.path", config.files)
    (splits,) = of_one_data_set(found)
    return [prepare_store(source, limits) for sources in splits.values() for source in sources]


def _matching_problems(
    config: TaskConfig, stores: Sequence[Store], skipped: Counter[str]
) -> StoredProblems:
    """Return the problems that the task's keys keep; count the others in `skipped`."""
    rows = RowSelection(config)
    matches = Filter(config.filter, config.quality, rows, checkers=config.checkers)
    entries = []
    found = load_entries(stores, alone=len(stores) == 1)
    rows.note(found)
    rows.check()
    for entry in found:
        if reason := matches.mismatch(entry):
            skipped[reason] += 1
        else:
            entries.append(entry)
    return StoredProblems(entries)


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status.

    0: every program has a verdict; 1: one has none, or nothing was judged; 2: a one-line error;
    130: interrupted.
    """
    console = Console()
    try:
        task, options, judge = parse(sys.argv[1:] if argv is None else argv)
        report = run(task, options, judge, console)
    except (OSError, ValueError, SandboxError) as error:
        print(f"validate: {readable(str(error), MAX_ERROR_CHARS)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("validate: interrupted; with the same out=FILE it resumes from here", file=sys.stderr)
        return 130
    return 1 if report.infra_errors or not report.verdicts else 0


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main())
