"""What a report says of each experiment, without its runs; of many runs on all cores.

An experiment is read, counted and laid out by itself, and only what is shown of it stays: so no
more of the runs are in memory at a time than those of as many experiments as there are cores.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.load.compute import cores, process_pool
from analysis.load.run_folders import RunError, experiment_of, load_run
from analysis.metrics.health import health
from analysis.report.headline import Answer, answer
from analysis.report.page.section_data import section_context
from analysis.report.section import Section, section
from analysis.stats import curves, differences, equal_budget, power, tables
from analysis.stats.tables import cost_table

MANY = 100  # runs for which it pays to start processes
Tables = dict[str, pd.DataFrame]
OF_EVALUATIONS = (
    "table.csv",
    "differences.csv",
    "tiers.csv",
    "power.csv",
    "equal_budget.csv",
    "equal_budget_differences.csv",
    "thresholds.csv",
    "curve.csv",
    "pass_at_k.csv",
    "profile.csv",
    "difficulty.csv",
    "verdicts.csv",
)


@dataclass(frozen=True)
class Part:
    """An experiment as the report shows it."""

    name: str
    place: str  # in a path and in a link
    ks: tuple[int, ...]
    answer: list[Answer]
    notes: list[str]
    tables: Tables  # file name → table
    context: dict[str, Any]  # of the page's template

    @property
    def results(self) -> pd.DataFrame:
        return self.tables["table.csv"]


Job = tuple[str, str, Sequence[Path], float, bool]
Found = tuple[Part | None, list[str]]


def parts(paths: Sequence[Path], skip_damaged: bool) -> tuple[list[Part], list[str]]:
    """The experiments of these run folders by name, and a line for each damaged one left out.

    Raises RunError at one that is damaged, unless these are to be skipped, and where nothing was
    evaluated yet.
    """
    by_name: dict[str, list[Path]] = {}
    for path in paths:
        by_name.setdefault(experiment_of(path), []).append(path)
    names = sorted(by_name)
    share = 1 / len(names)
    jobs = [
        (name, place, by_name[name], share, skip_damaged)
        for name, place in zip(names, places(names), strict=True)
    ]
    found = list(_each(jobs, len(paths)))
    return [part for part, _ in found if part], [line for _, lines in found for line in lines]


def _each(jobs: Sequence[Job], runs: int) -> Iterator[Found]:
    if cores() == 1 or len(jobs) == 1 or runs < MANY:
        yield from map(part_of, jobs)
        return
    with process_pool() as processes:
        try:
            yield from _begun(processes, jobs)
        except BaseException:
            for child in active_children():  # what they are at takes minutes, and is in vain
                child.terminate()
            raise


def _begun(processes: ProcessPoolExecutor, jobs: Sequence[Job]) -> Iterator[Found]:
    """Ctrl-C waits until the processes are all there to be ended, and does not reach them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return processes.map(part_of, jobs)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def part_of(job: Job) -> Found:
    """One experiment, None where all of it is damaged, and what was left out; see `parts`."""
    name, place, paths, share, skip_damaged = job
    runs, skipped = [], []
    for path in paths:
        try:
            runs.append(load_run(path))
        except RunError as error:
            if not skip_damaged:
                raise
            skipped.append(f"Damaged and left out: {str(error).partition(';')[0]}.")
    if not runs:
        return None, skipped
    of = section(name, runs)
    tables, said = tables_of(of), answer(of)
    context = section_context(of, said, tables, place, share)
    return Part(name, place, of.ks, said, of.notes, tables, context), skipped


def places(names: Sequence[str]) -> list[str]:
    """For each name one that is safe in a path and in a link, no two alike."""
    found: list[str] = []
    for name in names:
        safe = re.sub(r"[^\w-]+", "-", name)[:80].strip("-") or "runs"
        found.append(safe if safe not in found else f"{safe}-{len(found)}")
    return found


def tables_of(section: Section) -> Tables:
    """File name → table; without an evaluation only that of the runs has rows."""
    of_runs = {
        "runs.csv": tables.run_table(section.groups),
        "costs.csv": cost_table(section.groups),
        "health.csv": health(section.groups, section.ks),
    }
    rows = section.stages
    if not rows:
        return of_runs | dict.fromkeys(OF_EVALUATIONS, pd.DataFrame())
    found = (
        tables.result_table(rows),
        differences.difference_table(section.pairs),
        differences.tier_table(section.ends, section.pairs),
        power.power_table(section.ends, section.pairs, power.TARGET_DIFFERENCE),
        *equal_budget.equal_budget_tables(section.groups, section.ks),
        equal_budget.threshold_table(section.groups, section.ks)
        if section.ends
        else pd.DataFrame(),
        curves.evaluation_curve(section.groups, section.ks),
        tables.pass_at_k_table(rows),
        tables.profile_table(rows),
        tables.difficulty_table(rows),
        tables.verdict_table(rows).reset_index(),
    )
    return of_runs | dict(zip(OF_EVALUATIONS, found, strict=True))
