"""Judge a data set's own right and wrong programs: a test of the judge and of the data.

    python -m envs.validate task=NAME [task.path=PATH] [task.KEY=VALUE ...] [first=N]
                            [sandbox=auto|docker|embedded] [judge.KEY=VALUE ...]
                            [cheap=false] [public=true] [out=FILE.jsonl]
                            [quality=FILE.parquet|FILE.csv]

Takes run.py's task arguments, but by default keeps all tests of a problem, and reads all splits of
task.path whole. The keys that choose problems apply. With `out`, the same command resumes where it
was interrupted. `quality` writes a table for task.quality.

Programs that solve nothing (envs/tasks/strength.py) run too; problems that accept one are listed.
public=true also runs each first right program on the tests that a statement shows. The judge's
error rates are kept in the cache folder, where a run with the same judge and problems finds them.

Disagreements are listed and leave the exit status 0: data sets hold wrongly labelled programs.
Problems marked `needs_checker` are compared too, and reported apart: for them equal output proves
an answer right, but different output proves nothing.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, PositiveInt
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from envs.caching import cache_root, locked_folder, replace_file
from envs.command_line import (
    CONF,
    choice_lines,
    parse_arguments,
    print_help,
    quiet_when_unread,
    wants_help,
    yaml_lines,
)
from envs.judge.extract import as_response
from envs.judge.judge import Judge, JudgeConfig
from envs.judge.verdict_cache import VerdictLog
from envs.messages import MAX_ERROR_CHARS, readable
from envs.problem import Judgement, Problem, Submission, Verdict
from envs.sandbox import SandboxConfig, SandboxKind, open_sandbox
from envs.sandbox.base import SandboxError
from envs.tasks import open_task
from envs.tasks.checker_rules import comparing_checker
from envs.tasks.dataset import every_problem
from envs.tasks.prompts import public_problem
from envs.tasks.stored import content_digest, statement_hash
from envs.tasks.strength import (
    CHEAP_PROGRAMS,
    Strength,
    cheap_programs,
    measure_strength,
    shown_tests,
)
from envs.tasks.task import TaskConfig, is_task_argument, plain_task, task_config

T = TypeVar("T")

_BATCH = 1000  # programs read at once
_ALL_TESTS = ("++task.max_tests=1000000000", "++task.max_test_bytes=1000000000000")
_MAX_LISTED = 40  # disagreements, and problems that accept cheap programs
_MAX_LINE_CHARS = 2000
_MARKED = " (problem needs a checker)"
_KINDS = {"solution": "right", "incorrect": "wrong", "public": "right, on public tests"}
_COUNTS = ("right", "right_rejected", "wrong", "wrong_accepted")


def _table_file(path: Path) -> Path:
    if path.suffix not in (".parquet", ".csv"):
        raise ValueError("it must end in .parquet or .csv")
    if not path.parent.is_dir():  # judging may take hours
        raise ValueError(f"there is no folder {path.parent}")
    return path


@dataclass
class Options:
    """The command's own options."""

    sandbox: SandboxKind = "auto"  # auto: docker if it is there
    cheap: bool = True  # also run the programs that solve nothing
    public: bool = False  # also run the first right program of a problem on its public tests
    first: PositiveInt | None = None  # only the first N right and N wrong programs of every row
    out: Path | None = None  # file for JSON lines, one per program
    # file for a table, one row per problem
    quality: Annotated[Path, AfterValidator(_table_file)] | None = None


@dataclass
class Quality:
    """Counts of one problem's programs.

    `statement` (a hash) identifies the problem independently of how many tests a task keeps.
    """

    name: str
    statement: str
    checker: str
    needs_checker: bool
    tests: int
    hidden_tests: int
    distinct_outputs: int
    earned_by: str = ""  # the accepted cheap programs, separated by commas
    right: int = 0
    right_accepted: int = 0
    wrong: int = 0
    wrong_accepted: int = 0
    infra_errors: int = 0
    cpu_s: float = 0.0

    @property
    def good(self) -> bool:
        """At least one right program, all right ones accepted, no wrong or cheap one accepted."""
        judged = not self.infra_errors and not self.needs_checker
        earned = self.wrong_accepted or self.earned_by
        return 0 < self.right == self.right_accepted and judged and not earned

    def count(self, kind: str, index: int, judgement: Judgement) -> None:
        """Count a program of the problem."""
        accepted = judgement.verdict is Verdict.ACCEPTED
        self.infra_errors += judgement.verdict is Verdict.INFRA_ERROR
        if kind == "cheap":
            earned = {CHEAP_PROGRAMS[index]} if accepted else set()
            earned |= {*self.earned_by.split(", ")}
            self.earned_by = ", ".join(name for name in CHEAP_PROGRAMS if name in earned)
        if kind in ("solution", "incorrect"):
            right = kind == "solution"
            self.right += right
            self.right_accepted += right and accepted
            self.wrong += not right
            self.wrong_accepted += not right and accepted
            self.cpu_s += judgement.cpu_s


@dataclass(frozen=True, slots=True)
class LabelledProgram:
    """A program that the data set calls right or wrong, or a cheap one."""

    problem: Problem  # with a comparing checker if its own is `needs_checker`
    kind: str  # solution, incorrect, public or cheap
    index: int  # among the row's programs of this kind, or in CHEAP_PROGRAMS
    program: str
    quality: Quality  # to be counted in
    strength: Strength
    digest: str  # of the problem's content, as the data set has it

    def agrees(self, judgement: Judgement) -> bool:
        """Return whether a verdict is the expected one; that of a cheap program was computed."""
        if judgement.verdict is Verdict.INFRA_ERROR:
            return False
        accepted = judgement.verdict is Verdict.ACCEPTED
        if self.kind == "cheap":
            passed = self.strength.cheap_passed
            return passed is None or accepted == (passed[self.index] == self.strength.tests)
        return self.quality.needs_checker or accepted == (self.kind != "incorrect")


@dataclass
class Report:
    """Counts of programs by (label, verdict), and the qualities of the problems by digest."""

    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    qualities: dict[str, Quality] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)
    usable: bool = True  # whether a run could use any of the problems

    def add(self, one: LabelledProgram, judgement: Judgement) -> None:
        """Count a judged program."""
        cheap = one.kind == "cheap"
        name = CHEAP_PROGRAMS[one.index] if cheap else str(one.index)
        label = f"cheap: {name}" if cheap else _KINDS[one.kind]
        self.verdicts[label + _MARKED * one.quality.needs_checker, judgement.verdict] += 1
        self.qualities[one.digest] = one.quality
        one.quality.count(one.kind, one.index, judgement)
        if not one.agrees(judgement):
            reason = (judgement.detail.splitlines() or [""])[-1]
            text = f"{one.problem.name} {one.kind} {name}: {judgement.verdict} {reason}"
            self.disagreements.append(text)

    @property
    def complete(self) -> bool:
        """Whether programs were judged, each has a verdict, and a problem can be used."""
        failed = any(verdict == "INFRA_ERROR" for _, verdict in self.verdicts)
        return self.usable and bool(self.verdicts) and not failed


def labelled_programs(problems: Sequence[Problem], options: Options) -> Iterator[LabelledProgram]:
    """Yield the problems' programs in order: own ones, then cheap ones if the problem has tests.

    A problem that needs a checker gets a comparing one.
    """
    for problem in problems:
        digest, needs_checker = content_digest(problem), problem.checker == "needs_checker"
        if needs_checker:
            comparing = comparing_checker(problem.statement, problem.tests)
            problem = replace(problem, checker="call" if problem.fn_name else comparing)
        strength = measure_strength(problem)
        facts = (strength.tests, strength.hidden, strength.distinct_outputs)
        statement = statement_hash(problem.statement)
        quality = Quality(problem.name, statement, problem.checker, needs_checker, *facts)
        own = {"solution": problem.solutions, "incorrect": problem.incorrect_solutions}
        programs: list[tuple[Problem, str, int, str]] = [
            (problem, kind, index, source)
            for kind, sources in own.items()
            for index, source in enumerate(sources[: options.first])
        ]
        if options.public and problem.solutions and (public := public_problem(problem)):
            programs.append((public, "public", 0, problem.solutions[0]))
        if options.cheap and problem.tests:
            programs += [
                (problem, "cheap", CHEAP_PROGRAMS.index(made.name), made.source)
                for made in cheap_programs(problem, shown_tests(problem))
            ]
        for program in programs:
            yield LabelledProgram(*program, quality, strength, digest)


def validate(
    judge: Judge, problems: Sequence[Problem], options: Options, log: VerdictLog, console: Console
) -> Report:
    """Judge all programs that are not in the verdict log, and show progress."""
    report = Report()
    columns = (TextColumn("judging: {task.completed:.0f} programs"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=None)
        programs = labelled_programs(problems, options)
        while batch := list(itertools.islice(programs, _BATCH)):
            fresh: list[LabelledProgram] = []
            for one in batch:
                logged = log.get(one.problem, one.kind, one.program)
                if logged is None:
                    fresh.append(one)
                else:
                    report.add(one, logged)
            submissions = [Submission(one.problem, as_response(one.program)) for one in fresh]
            for number, judgement in judge.iter_judgements(submissions):
                one = fresh[number]
                about = (one.kind, one.index, one.program, one.quality.needs_checker)
                log.add(one.problem, *about, judgement)
                report.add(one, judgement)
            progress.update(bar, completed=report.verdicts.total())
    return report


def run(task: TaskConfig, options: Options, config: JudgeConfig, console: Console) -> Report:
    """Load, judge, write and show. Raises OSError, ValueError and SandboxError."""
    if task.environment is not None:
        raise ValueError(f"task.environment={task.environment}: its responses are no programs")
    skipped: Counter[str] = Counter()
    if task.rows is not None:
        problems: Sequence[Problem] = every_problem(task, skipped)
    else:
        splits = open_task(task).splits().values()
        problems = [problem for split in splits for problem in split]
    with open_sandbox(SandboxConfig(kind=options.sandbox)) as sandbox:
        console.print(f"{len(problems)} problems; {sandbox.strength}")
        judge = Judge(sandbox, config)
        started = time.perf_counter()
        with VerdictLog(options.out, judge.version) as log:
            report = validate(judge, problems, options, log, console)
        wall_s = time.perf_counter() - started
    if file := options.quality:
        import pandas as pd

        rows = [vars(one) | {"good": one.good} for one in report.qualities.values()]
        table = pd.DataFrame(rows, columns=[*Quality.__dataclass_fields__, "good"])
        if file.suffix == ".csv":
            table.to_csv(file, index=False)
        else:
            table.to_parquet(file, index=False)
    keep_counts(report.qualities, judge.version)
    show(report, skipped, console)
    if not report.verdicts:
        reason = "the problems have no programs" if problems else "no row gave a problem"
        console.print(f"nothing was judged: {reason}")
    reasons = Counter(entry.left_out for entry in getattr(problems, "entries", ()))
    report.usable = None in reasons or not reasons
    if not report.usable:
        console.print("no problem can be used:", *(f"{why}: {n}" for why, n in reasons.items()))
    stats = judge.stats
    console.print(
        f"{stats.submissions / max(wall_s, 1e-9):.1f} programs/s, {stats.tests_run} tests in "
        f"{wall_s:.1f} s, {stats.cpu_s:.1f} s CPU; judge {judge.version}, sandbox {sandbox.name}"
    )
    if logged := report.verdicts.total() - stats.submissions:
        console.print(f"{logged} verdicts were known from {options.out}")
    return report


def show(report: Report, skipped: Mapping[str, int], console: Console) -> None:
    """Print counts, error rates, skipped rows and disagreements."""
    table = Table("programs", "judged", "accepted", "rejected", "reasons")
    labels = (*_KINDS.values(), *(f"cheap: {name}" for name in CHEAP_PROGRAMS))
    for label in (label + mark for mark in ("", _MARKED) for label in labels):
        counts = {v: n for (other, v), n in sorted(report.verdicts.items()) if other == label}
        if not counts:
            continue
        judged, accepted = sum(counts.values()), counts.pop("ACCEPTED", 0)
        reasons = ", ".join(f"{verdict} {count}" for verdict, count in counts.items())
        table.add_row(label, str(judged), str(accepted), str(judged - accepted), reasons)
    console.print(table)
    for marked in (False, True):
        rows = [one for one in report.qualities.values() if one.needs_checker == marked]
        rates = error_rates(len(rows), [found for one in rows if (found := _counts(one))])
        if line := error_line(rates):
            console.print(line + _MARKED * marked, soft_wrap=True)
    earning = [one for one in report.qualities.values() if one.earned_by]
    earned = [f"{one.name}: {one.earned_by}{_MARKED * one.needs_checker}" for one in earning]
    lists = {
        f"problems that accept a cheap program, of {len(report.qualities)}": sorted(earned),
        "rows skipped or changed": [f"{why}: {count}" for why, count in sorted(skipped.items())],
        "not as the data set says": report.disagreements,
    }
    for title, lines in lists.items():
        if lines:
            console.print(f"{title}: {len(lines)}")
        for line in lines[:_MAX_LISTED]:
            text = f"  {readable(line, _MAX_LINE_CHARS)}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)


# The judge's error rates: right programs that it rejects, and wrong ones that it accepts.


def _counts(quality: Quality) -> dict[str, int] | None:
    """Return the counts of a problem's own programs; None if the judge failed on one."""
    if quality.infra_errors or not quality.right + quality.wrong:
        return None
    rejected = quality.right - quality.right_accepted
    values = (quality.right, rejected, quality.wrong, quality.wrong_accepted)
    return dict(zip(_COUNTS, values, strict=True))


def error_rates(problems: int, counted: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """Return counts and error rates over problems, as plain values for run.json.

    A rate is (share, low, high) with Wilson's interval at 95 % (1927), None without programs. It
    takes programs for independent, although those of one problem are not: it is too narrow where
    few problems have most of the errors.
    """
    totals = {key: sum(counts[key] for counts in counted) for key in _COUNTS}

    def rate(count: int, total: int) -> tuple[float, float, float] | None:
        if not total:
            return None
        from scipy import stats

        found = stats.binomtest(count, total)
        low, high = found.proportion_ci(method="wilson")
        return found.statistic, float(low), float(high)

    rates: dict[str, Any] = {"problems": problems, "measured_problems": len(counted)} | totals
    rates["false_rejects"] = rate(totals["right_rejected"], totals["right"])
    rates["false_accepts"] = rate(totals["wrong_accepted"], totals["wrong"])
    return rates


def error_line(rates: Mapping[str, Any]) -> str:
    """Return both error rates in words, with intervals; "" without programs."""
    parts = []
    for verb, key, label in (
        ("rejects", "false_rejects", "right"),
        ("accepts", "false_accepts", "wrong"),
    ):
        if rates[key]:
            share, low, high = (f"{100 * value:.1f}" for value in rates[key])
            parts.append(f"{verb} {share} % [{low}, {high}] of {rates[label]} {label} programs")
    return f"the judge {' and '.join(parts)}" if parts else ""


def known_rates(digests: Sequence[str], judge_version: str) -> dict[str, Any]:
    """Return the error rates that this judge showed on the problems of these content digests."""
    known = _known_counts(judge_version)
    return error_rates(len(digests), [known[digest] for digest in digests if digest in known])


def keep_counts(qualities: Mapping[str, Quality], judge_version: str) -> None:
    """Store counts by content digest, unless more programs of the problem were judged before."""
    folder = cache_root() / "judge_errors"
    with locked_folder(folder):
        known = _known_counts(judge_version)
        for digest, quality in qualities.items():
            counts = None if quality.needs_checker else _counts(quality)
            before = known.get(digest, {"right": 0, "wrong": 0})
            if counts and counts["right"] + counts["wrong"] >= before["right"] + before["wrong"]:
                known[digest] = counts
        replace_file(folder / f"{judge_version}.json", json.dumps(known, sort_keys=True))


def _known_counts(judge_version: str) -> dict[str, dict[str, int]]:
    file = cache_root() / "judge_errors" / f"{judge_version}.json"
    return json.loads(file.read_text()) if file.exists() else {}


def parse_judge_arguments(
    schema: type[T], argv: Sequence[str], task_defaults: Sequence[str] = ()
) -> tuple[TaskConfig, T, JudgeConfig]:
    """Parse a command's arguments for its task, itself and the judge. Raises ValueError.

    `task_defaults` are arguments that stand before those of the command line. With --help among
    them: print the help and end the process.
    """
    task = [word for word in argv if is_task_argument(word)]
    if wants_help(argv):
        values = plain_task(task)
        chosen, judge_values = CONF / "task" / f"{values['name']}.yaml", asdict(JudgeConfig())
        sections = {
            "task=NAME, a file of conf/task/": choice_lines(CONF / "task"),
            f"Keys of task={values['name']}": yaml_lines(chosen, values, "task."),
            "Keys of the judge": yaml_lines(CONF / "judge.yaml", judge_values, "judge."),
        }
        with quiet_when_unread():
            print_help(schema)
            for title, lines in sections.items():
                print(f"\n{title}:", *lines, sep="\n")
        raise SystemExit(0)
    judge = [word.removeprefix("judge.") for word in argv if word.startswith("judge.")]
    own = [word for word in argv if not (word.startswith("judge.") or is_task_argument(word))]
    try:
        judge_config = parse_arguments(JudgeConfig, judge)
    except ValueError as error:
        raise ValueError(f"judge.KEY=VALUE: {error}") from error
    return task_config([*task_defaults, *task]), parse_arguments(schema, own), judge_config


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status.

    0: every program has a verdict; 1: one has none, nothing was judged, or no problem can be used;
    2: a one-line error; 130: interrupted.
    """
    try:
        arguments = sys.argv[1:] if argv is None else argv
        parsed = parse_judge_arguments(Options, arguments, task_defaults=_ALL_TESTS)
        report = run(*parsed, Console())
    except (OSError, ValueError, SandboxError) as error:
        print(f"validate: {readable(str(error), MAX_ERROR_CHARS)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("validate: interrupted; with the same out=FILE it resumes from here", file=sys.stderr)
        return 130
    return 0 if report.complete else 1


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main())
