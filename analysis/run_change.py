"""What one run changed: pass@k and single problems before and after training.

Both evaluations have the same problems, so their difficulty cancels. What is left in the change is
the noise of the samples, for which there is an interval. It says nothing on other seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.budgets import PHASE_TITLES, final_budget
from analysis.experiment import Experiment
from analysis.intervals import LEVEL, interval
from analysis.power import sampling_variance
from analysis.rendering import (
    BUDGET_HEADINGS,
    MEMORY_HEADINGS,
    count,
    duration,
    ends,
    missing,
    number,
    records,
)
from analysis.runs import Run
from analysis.scores import counts_at_step, pass_values
from analysis.tables import cost_table


def problem_changes(run: Run, before: int, after: int) -> pd.DataFrame:
    """Return a row per problem of both evaluations, by name: n_before, c_before, n_after, c_after.

    n are judged samples, c accepted ones.
    """
    first = counts_at_step(run, before).add_suffix("_before")
    both = first.join(counts_at_step(run, after).add_suffix("_after"), how="inner")
    return both[["n_before", "c_before", "n_after", "c_after"]].sort_index()


def pass_changes(changes: pd.DataFrame, ks: Sequence[int]) -> pd.DataFrame:
    """Return a row per k: k, problems, before, after, change, and two 95 % intervals of the change.

    `changes` are those of `problem_changes`. sampling_low and _high hold for these problems and new
    samples; low and high for other problems of the kind, too. A k counts the problems with at least
    k samples in both evaluations, and has no row without one.
    """
    rows = []
    for k in ks:
        enough = changes[(changes["n_before"] >= k) & (changes["n_after"] >= k)]
        if not len(enough):
            continue
        n_before, c_before, n_after, c_after = (enough[name].to_numpy() for name in enough)
        before, after = pass_values(n_before, c_before, k), pass_values(n_after, c_after, k)
        half = _sampling_half_width(n_before, c_before, k, n_after, c_after)
        overall = interval(after - before, bounds=(-1.0, 1.0))
        rows.append(
            {
                "k": k,
                "problems": len(enough),
                "before": before.mean(),
                "after": after.mean(),
                "change": overall.mean,
                "sampling_low": overall.mean - half,
                "sampling_high": overall.mean + half,
                "low": overall.low,
                "high": overall.high,
            }
        )
    return pd.DataFrame(rows)


def _sampling_half_width(
    n_before: np.ndarray, c_before: np.ndarray, k: int, n_after: np.ndarray, c_after: np.ndarray
) -> float:
    """Return the half-width of the change's interval from samples alone; NaN with one sample."""
    from scipy.special import ndtri

    variances = sampling_variance(c_before, n_before, k) + sampling_variance(c_after, n_after, k)
    return float(ndtri((1 + LEVEL) / 2) * np.sqrt(variances.sum()) / len(variances))


def gained_and_lost(changes: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of problems that only the trained model solved, and that only the base did.

    Solved: at least one sample was accepted. The most accepted samples come first.
    """
    solved_before, solved_after = changes["c_before"] > 0, changes["c_after"] > 0
    gained, lost = changes[~solved_before & solved_after], changes[solved_before & ~solved_after]
    return (
        gained.sort_values("c_after", ascending=False, kind="stable"),
        lost.sort_values("c_before", ascending=False, kind="stable"),
    )


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
