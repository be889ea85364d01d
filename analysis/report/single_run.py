"""What the page of a single run begins with: what it learnt, and what it spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.report.experiment import Experiment
from analysis.report.render import (
    BUDGET_HEADINGS,
    MEMORY_HEADINGS,
    count,
    ends,
    missing,
    number,
    records,
)
from analysis.report.units import duration
from analysis.stats.run_change import gained_and_lost, pass_changes, problem_changes
from analysis.stats.tables import PHASE_TITLES, cost_table, final_budget

MOST_NAMED = 12  # problems named at first; the others are folded away


def single_run(experiment: Experiment) -> dict[str, Any] | None:
    """Return the template's variables on the only run of an experiment.

    None if there are several runs, or no evaluation both before and after training.
    """
    if len(experiment.runs) != 1 or not experiment.bases or not experiment.trained:
        return None
    (run,), (model,) = experiment.runs, experiment.trained
    changes = problem_changes(run, 0, model.step)
    gained, lost = gained_and_lost(changes)
    return {
        "name": run.path.name,
        "label": model.label,
        "base": experiment.bases[0].label,
        "step": model.step,
        "samples_before": max(experiment.bases[0].sample_counts),
        "samples_after": max(model.sample_counts),
        "problems": len(changes),
        "passes": _pass_cells(pass_changes(changes, experiment.ks)),
        "most_named": MOST_NAMED,
        "solved_before": int((changes["c_before"] > 0).sum()),
        "solved_after": int((changes["c_after"] > 0).sum()),
        "moved": [
            ("Gained", "solved after training and not before", _named(gained)),
            ("Lost", "solved before training and not after", _named(lost)),
        ],
        "spent": _spent(experiment),
    }


def _pass_cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    heading = ["metric", "before", "after", "change", "change, on any problems"]
    return heading, [
        [
            f"pass@{row['k']}",
            number(row["before"]),
            number(row["after"]),
            _signed(row["change"], row["sampling_low"], row["sampling_high"], row),
            _signed(row["change"], row["low"], row["high"], row),
        ]
        for row in records(table)
    ]


def _signed(mean: float, low: float, high: float, row: Mapping[str, Any]) -> str:
    """Return +0.052 [−0.020, 0.124]; of an interval without width, the number of problems."""
    bracket = ends(low, high) or f"[{row['problems']} problems]"
    return f"{mean:+.3f} {bracket}".replace("-", "−")


def _named(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Return each problem with its accepted samples before and after, and of how many."""
    named = []
    for name, row in zip(rows.index, records(rows), strict=True):
        of = "" if row["n_before"] == row["n_after"] else f" of {row['n_before']}"
        named.append((str(name), f"{row['c_before']}{of} → {row['c_after']} of {row['n_after']}"))
    return named


def _spent(experiment: Experiment) -> list[tuple[str, str]]:
    """Return title and amount of what the run spent, without what it did not spend or record."""
    (run,) = experiment.runs
    budget = final_budget(run)
    spent = [
        (BUDGET_HEADINGS[name], count(budget[name]))
        for name in BUDGET_HEADINGS
        if name != "wall_s" and not missing(budget[name]) and budget[name] > 0
    ]
    (costs,) = records(cost_table(experiment.groups))
    phases = [
        f"{title} {duration(costs[f'{phase}_s'])}"
        for phase, title in PHASE_TITLES.items()
        if not missing(costs[f"{phase}_s"]) and costs[f"{phase}_s"] > 0
    ]
    times = {
        "training": f"{duration(costs['trained_s'])}: {', '.join(phases)}",
        "per step": duration(costs["step_s"]),
        "evaluating (not charged)": duration(costs["evaluate_s"]),
        "judge CPU": duration(costs["judge_cpu_s"]),
    }
    memory = {
        title: count(costs[name])
        for name, title in MEMORY_HEADINGS.items()
        if not missing(costs[name])
    }
    return [*((t, text) for t, text in times.items() if text[0] != "–"), *spent, *memory.items()]
