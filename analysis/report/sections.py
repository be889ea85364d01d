"""The sections of a report, one per experiment; many runs are read on all cores.

An experiment is read, scored and laid out by itself, and only its section stays in memory. At most
one experiment per core is in memory at a time.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from analysis.load.compute import cores, process_pool
from analysis.load.hyperparameters import settings_table
from analysis.load.packed_study import experiment_of_packed
from analysis.load.run_folders import experiment_of, is_packed
from analysis.metrics.health import health
from analysis.report.experiment import NOTHING, Experiment, Plan, Section, read_experiment
from analysis.report.headline import headlines
from analysis.report.page.section_data import section_context
from analysis.stats import curve_fits, curves, differences, equal_budget, power, tables
from analysis.stats.letters import letter_table
from analysis.stats.named_pairs import contrast_table, control_table
from analysis.turns.tables import TURN_TABLES, turn_tables

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
        "power.csv": power.power_table(trained, pairs, power.TARGET_DIFFERENCE),
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
