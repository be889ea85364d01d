"""Turn run folders, or packed studies, into a report: tables, figures and one HTML page.

    python -m analysis.report runs=outputs out=reports/latest

The runs are only read. Nothing is written before all of them have been read.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import active_children
from pathlib import Path
from typing import Annotated, NamedTuple

import pandas as pd
from pydantic import Field

from analysis import budgets as curves
from analysis import budgets as equal_budget
from analysis import comparisons as differences
from analysis import power, tables
from analysis import saturation as curve_fits
from analysis.comparisons import contrast_table, control_table, letter_table
from analysis.compute import cores, process_pool
from analysis.experiment import NOTHING, Experiment, Plan, Section, read_experiment
from analysis.findings import headlines
from analysis.packed import experiment_of_packed
from analysis.page import section_context
from analysis.runs import FILES, RunError, experiment_of, find_runs, is_packed
from analysis.settings import settings_table
from analysis.tables import health
from analysis.turns import TURN_TABLES, turn_tables
from envs.command_line import (
    did_you_mean,
    parse_arguments,
    print_help,
    quiet_when_unread,
    wants_help,
)
from envs.readable import readable

HELP = """\
Make a report of run folders: tables, figures and one HTML page.

  python -m analysis.report [runs=WHERE] [out=FOLDER] [margin=0.03] [control=GROUP]
                            [skip_damaged=true]

Each experiment (the runs of one `name`) is reported separately. A packed study, such as
docs/results/study-mini, is one too, with the margin and the control of its file; it has no
programs. Writes report.html
(self-contained), table.md, table.csv (a row per group), runs.csv (a row per run),
settings.csv (a row per group and setting), differences.csv (a row per ordered pair of groups
and metric), contrasts.csv (the pairs that a study named before its runs), control.csv (each group
minus the control), letters.csv and tiers.csv, power.csv (what the design could detect),
equal_budget.csv, equal_budget_differences.csv, thresholds.csv, curve.csv, training.csv and
pass_at_k.csv (the data of the figures), profile.csv, difficulty.csv, verdicts.csv, and the page's
figures as .svg in figures/. Of conversations with several turns, also turns.csv,
turn_differences.csv and turn_curve.csv. Of a single run folder, the page begins with what the run
learnt and spent.
"""


@dataclass
class Options:
    """The command line."""

    # folders or quoted glob patterns, separated by commas; searched for run folders, and packed
    # studies, at any depth
    runs: str = "outputs"
    out: Path = Path("reports/latest")  # folder of the report; an earlier report is replaced
    # a difference in pass@k up to which two groups are equal, named before the runs; null: none, or
    # that of a packed study
    margin: Annotated[float, Field(gt=0, lt=1)] | None = None
    control: str | None = None  # the label of the group that each other one is compared with
    skip_damaged: bool = False  # skip damaged run folders and list them, instead of stopping


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code.

    0: done; 1: bad runs; 2: bad command line; 130: interrupted.
    """
    if wants_help(arguments):
        print_help(Options, HELP)
        return 0
    try:
        try:
            options = parse_arguments(Options, arguments)
            check_out(options.out)
        except ValueError as error:
            print(f"error: {error} (see --help)", file=sys.stderr)
            return 2
        sections, skipped = read_sections(options)
        report(sections, skipped, options.out)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run the same command to start again", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}; check its permissions", file=sys.stderr)
        return 1
    return 0


def check_out(out: Path) -> None:
    """Check the output folder. Raises ValueError if it is a file or inside a run folder."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"out={out}: is a file; give a folder")
    for folder in (out.resolve(), *out.resolve().parents):
        if any((folder / name).exists() for name in FILES):
            raise ValueError(f"out={out}: lies in the run folder {folder}; give another folder")


def read_sections(options: Options) -> tuple[list[Section], list[str]]:
    """Return all sections, and a line per damaged folder that was skipped. Raises RunError."""
    from analysis.experiment import Plan

    paths = find_runs(filter(None, options.runs.split(",")))
    plan = Plan(options.margin, options.control)
    sections, skipped = build_sections(paths, options.skip_damaged, plan)
    if not any(len(section.results) for section in sections):
        raise RunError(
            f"runs={options.runs}: no run there has an evaluation yet; wait for the "
            "first, or choose other runs"
        )
    if options.control is not None:
        check_control(options.control, sections)
    return sections, skipped


def check_control(control: str, sections: Sequence[Section]) -> None:
    """Raise RunError if the control is no trained group of any experiment."""
    results = [section.results for section in sections if len(section.results)]
    labels = dict.fromkeys(
        label for table in results for label in table["label"][table["step"] > 0]
    )
    if control not in labels:
        near = did_you_mean(control, list(labels))
        listed = ", ".join(labels) or "none"
        raise RunError(f"control={control}: no such group; {near}the groups are: {listed}")


def report(sections: Sequence[Section], skipped: Sequence[str], out: Path) -> None:
    """Write the report into `out`; print the main tables, the caveats and its path."""
    from rich.console import Console

    from analysis.page import write_report
    from analysis.rendering import terminal_table

    write_report(sections, skipped, out)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)
    for section in sections:
        if len(sections) > 1:
            console.rule(section.name, align="left", style="dim")
        for line in (line for headline in section.headlines for line in headline.lines()):
            console.print(readable(line), markup=False)
        if len(section.results):
            console.print(terminal_table(section.results, section.ks))
        for sentence in section.notes:
            console.print(f"note: {readable(sentence)}", markup=False)
    for sentence in skipped:
        console.print(f"note: {readable(sentence)}", markup=False)
    print(f"report: {out / 'report.html'}")


MIN_PARALLEL = 100  # runs from which worker processes pay
EVALUATION_TABLES = (
    "table.csv",
    "differences.csv",
    "contrasts.csv",
    "control.csv",
    "tiers.csv",
    "letters.csv",
    "power.csv",
    "equal_budget.csv",
    "equal_budget_differences.csv",
    "thresholds.csv",
    "curve.csv",
    "curve_fits.csv",
    "curve_fit_differences.csv",
    "pass_at_k.csv",
    "profile.csv",
    "difficulty.csv",
    "verdicts.csv",
    *TURN_TABLES,
)


class SectionJob(NamedTuple):
    """One experiment to read; `page_share` is its share of the page's room for programs.

    `paths` are run folders, or one packed study.
    """

    name: str
    slug: str
    paths: Sequence[Path]
    page_share: float
    skip_damaged: bool
    plan: Plan


class SectionResult(NamedTuple):
    """A section, None if all runs are damaged, and a line per damaged run that was left out."""

    section: Section | None
    skipped: list[str]


def build_sections(
    paths: Sequence[Path], skip_damaged: bool, plan: Plan = NOTHING
) -> tuple[list[Section], list[str]]:
    """Return the sections of these run folders by name, and a line per damaged one left out.

    A packed study is a section by itself. Raises RunError for a damaged run, unless these are to be
    skipped.
    """
    by_name: dict[tuple[str, str], list[Path]] = {}
    for path in paths:
        packed = is_packed(path)
        name = experiment_of_packed(path) if packed else experiment_of(path)
        by_name.setdefault((name, str(path) if packed else ""), []).append(path)
    keys = sorted(by_name)
    names = [name for name, _ in keys]
    jobs = [
        SectionJob(name, slug, by_name[key], 1 / len(keys), skip_damaged, plan)
        for key, name, slug in zip(keys, names, slugs(names), strict=True)
    ]
    results = list(_run_jobs(jobs, len(paths)))
    sections = [result.section for result in results if result.section]
    return sections, [line for result in results for line in result.skipped]


def _run_jobs(jobs: Sequence[SectionJob], runs: int) -> Iterator[SectionResult]:
    if cores() == 1 or len(jobs) == 1 or runs < MIN_PARALLEL:
        yield from map(build_section, jobs)
        return
    with process_pool() as processes:
        try:
            yield from _submit(processes, jobs)
        except BaseException:
            for child in active_children():  # their work would take minutes, in vain
                child.terminate()
            raise


def _submit(processes: ProcessPoolExecutor, jobs: Sequence[SectionJob]) -> Iterator[SectionResult]:
    """Start the jobs, deferring Ctrl-C until all processes exist and can be terminated.

    The processes inherit the signal mask and never receive it. The mask alone does not defer it,
    because the kernel may deliver the signal to a thread of a numerical library.
    """
    if threading.current_thread() is not threading.main_thread():  # Ctrl-C is the main thread's
        return processes.map(build_section, jobs)
    interrupts: list[int] = []
    previous_handler = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return processes.map(build_section, jobs)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        signal.signal(signal.SIGINT, previous_handler)
        if interrupts:
            raise KeyboardInterrupt


def build_section(job: SectionJob) -> SectionResult:
    """Read and lay out one experiment. Raises RunError as `build_sections` does."""
    experiment, skipped = read_experiment(job.name, job.paths, job.plan, job.skip_damaged)
    if experiment is None:
        return SectionResult(None, skipped)
    section = Section(
        name=job.name,
        slug=job.slug,
        ks=experiment.ks,
        temperatures=experiment.temperatures,
        headlines=headlines(experiment),
        notes=experiment.notes,
        tables=experiment_tables(experiment),
        context={},
    )
    section.context.update(section_context(experiment, section, job.page_share))
    return SectionResult(section, skipped)


def slugs(names: Sequence[str]) -> list[str]:
    """Return for each name a distinct one that is safe in a path and in a link."""
    chosen: list[str] = []
    for name in names:
        safe = re.sub(r"[^\w-]+", "-", name)[:80].strip("-") or "runs"
        chosen.append(safe if safe not in chosen else f"{safe}-{len(chosen)}")
    return chosen


def experiment_tables(experiment: Experiment) -> dict[str, pd.DataFrame]:
    """Return file name → table; without an evaluation, only the tables of runs have rows.

    verdicts.csv of a packed study has no rows: its counts tell accepted samples from others only.
    """
    groups, models, ks = experiment.groups, experiment.models, experiment.ks
    run_tables = {
        "runs.csv": tables.run_table(groups),
        "settings.csv": settings_table(groups),
        "costs.csv": tables.cost_table(groups),
        "health.csv": health(groups, ks),
        "training.csv": experiment.training,
    }
    if not models:
        return run_tables | dict.fromkeys(EVALUATION_TABLES, pd.DataFrame())
    trained, pairs = experiment.trained, experiment.pairs
    at_equal_budget, equal_budget_differences = equal_budget.equal_budget_tables(groups, ks)
    fits = experiment.fits
    verdicts = tables.verdict_table(models).reset_index()
    if experiment.packed:
        verdicts = pd.DataFrame(columns=["label"])
    thresholds = equal_budget.threshold_table(groups, ks) if trained else pd.DataFrame()
    by_file = {
        "table.csv": tables.result_table(models),
        "differences.csv": differences.difference_table(pairs),
        "contrasts.csv": contrast_table(experiment.contrasts),
        "control.csv": control_table(experiment.against_control),
        "tiers.csv": differences.tier_table(trained, pairs),
        "letters.csv": letter_table(trained, pairs),
        "power.csv": tables.power_table(trained, pairs, power.TARGET_DIFFERENCE),
        "equal_budget.csv": at_equal_budget,
        "equal_budget_differences.csv": equal_budget_differences,
        "thresholds.csv": thresholds,
        "curve.csv": curves.evaluation_curve(groups, ks),
        "curve_fits.csv": curve_fits.fit_table(fits),
        "curve_fit_differences.csv": curve_fits.fit_differences(fits),
        "pass_at_k.csv": tables.pass_at_k_table(models),
        "profile.csv": tables.profile_table(models),
        "difficulty.csv": tables.difficulty_table(models),
        "verdicts.csv": verdicts,
        **turn_tables(models, groups, ks),
    }
    return run_tables | {name: by_file[name] for name in EVALUATION_TABLES}


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
