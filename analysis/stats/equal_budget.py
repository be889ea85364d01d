"""The comparison at equal budget, by interpolation, beside the one at equal steps.

The budget of an axis is the least that any run had spent by its last evaluation, so that nothing is
extrapolated. Between two evaluations of a run, each problem's score is interpolated linearly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.load.compute import memoize
from analysis.load.groups import Group
from analysis.load.run_folders import Run
from analysis.metrics.evaluated_models import ScoredGroup
from analysis.metrics.scores import ProblemScores, ScoreGrid, scores_by_step, stack_seeds
from analysis.stats.curves import X_AXES, spend_at_step
from analysis.stats.differences import (
    PairedDifference,
    difference_table,
    paired_differences,
    tier_table,
)
from analysis.stats.tables import AREA, grid_interval

AXES = tuple(x for x in X_AXES if x != "step")


class GroupAtBudget:
    """A group's runs at the point where each had spent `budget` on axis `x`."""

    def __init__(self, group: Group, x: str, budget: float, ks: Sequence[int]) -> None:
        self.label, self.seeds = group.label, tuple(run.seed for run in group.complete)
        by_seed = [scores_at_budget(run, x, budget, tuple(ks)) for run in group.complete]
        self.grids = stack_seeds(self.seeds, by_seed)


@memoize
def spend_at_evaluations(run: Run, x: str) -> tuple[list[int], np.ndarray]:
    """Return the run's evaluated steps and its spend at each, where it was recorded."""
    steps = run.evaluated_steps
    spend = np.array([spend_at_step(run, step, x) for step in steps])
    recorded = ~np.isnan(spend)
    return [step for step, known in zip(steps, recorded, strict=True) if known], spend[recorded]


def common_budget(groups: Sequence[Group], x: str) -> float:
    """Return the least spend of any run at its last evaluation; NaN if a run did not record it."""
    spend = [
        spend_at_step(run, g.last_step, x) for g in groups if g.last_step for run in g.complete
    ]
    return float(np.min(spend)) if spend else float("nan")


def scores_at_budget(
    run: Run, x: str, budget: float, ks: tuple[int, ...]
) -> dict[str, ProblemScores]:
    """Return the scores per problem at `budget`, and AREA: pass@1 averaged over the axis up to it.

    A score that is undefined at one of the two evaluations beside the budget is left out. Of
    evaluations between which nothing was spent, the last one counts.
    """
    steps, spend = spend_at_evaluations(run, x)
    after = int(np.searchsorted(spend, budget, side="right").clip(1, len(spend) - 1))
    share = _position(spend[after - 1], spend[after], budget)
    points = np.append(spend[:after], budget)
    scores = {}
    for metric, grid in scores_by_step(run, ks).items():
        rows = [run.evaluated_steps.index(step) for step in steps]
        values, weights = grid.values[rows], grid.weights[rows]
        value, weight = (
            (1 - share) * part[after - 1] + share * part[after] for part in (values, weights)
        )
        defined = np.all(weights[after - 1 : after + 1] > 0, axis=0)
        scores[metric] = _where_defined(grid, defined, value, weight)
        if metric == "pass@1":
            curve = np.vstack([values[:after], value])
            area = np.trapezoid(curve, points, axis=0) / budget
            defined &= np.all(weights[:after] > 0, axis=0)
            scores[AREA] = _where_defined(grid, defined, area, np.ones_like(area))
    return scores


def _where_defined(
    grid: ScoreGrid, defined: np.ndarray, value: np.ndarray, weight: np.ndarray
) -> ProblemScores:
    problems = np.array(grid.problems, dtype=object)[defined]
    return ProblemScores(problems, value[defined], weight[defined])


def _position(before: float, after: float, budget: float) -> float:
    """Return where `budget` lies between two points: 0 at `before`, 1 at `after`."""
    return float((budget - before) / (after - before)) if after > before else 1.0


def equal_budget_tables(
    groups: Sequence[Group], ks: Sequence[int]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return equal_budget.csv and equal_budget_differences.csv.

    The former has axis, budget, label, metric, mean, low, high, tier; the latter axis, budget, and
    the columns of differences.csv. A group has no rows on an axis on which it spent nothing (`algo=
    sft` generates no tokens) or on which a run of it recorded nothing.
    """
    means, differences = [], []
    groups = [group for group in groups if group.last_step > 0]
    for x in AXES:
        spending = [group for group in groups if common_budget([group], x) > 0]
        if not spending:
            continue
        budget = common_budget(spending, x)
        at_budget = [GroupAtBudget(group, x, budget, ks) for group in spending]
        metrics = dict.fromkeys(metric for group in at_budget for metric in group.grids)
        if not metrics:  # the judge failed on everything
            continue
        pairs = paired_differences(at_budget, metrics)
        means.append(_mean_table(at_budget, pairs).assign(axis=x, budget=budget))
        differences.append(difference_table(pairs).assign(axis=x, budget=budget))
    return _axis_first(means), _axis_first(differences)


def _mean_table(groups: Sequence[ScoredGroup], pairs: Sequence[PairedDifference]) -> pd.DataFrame:
    rows = []
    for group in groups:
        for metric, grid in group.grids.items():
            interval = grid_interval(grid, metric)
            ends = {"mean": interval.mean, "low": interval.low, "high": interval.high}
            rows.append({"label": group.label, "metric": metric, **ends})
    return pd.DataFrame(rows).merge(tier_table(groups, pairs), how="left", on=["label", "metric"])


def _axis_first(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    if not tables:
        return pd.DataFrame()
    table = pd.concat(tables, ignore_index=True)
    return table[["axis", "budget", *table.columns.drop(["axis", "budget"])]]


def threshold_table(groups: Sequence[Group], ks: Sequence[int] = (1,)) -> pd.DataFrame:
    """Return thresholds.csv: axis, label, threshold, seeds, reached, budget.

    The threshold is the least final pass@1 of any group, so that all groups can be compared. A
    group has no rows on an axis that a run of it did not record.
    `reached` is the number of seeds that reached it, and `budget` their mean spend when they first
    did.
    """
    groups = [group for group in groups if group.last_step > 0]
    final = [
        np.mean([_pass_at_1(run, group.last_step, ks) for run in group.complete])
        for group in groups
    ]
    rows = []
    for x in X_AXES:
        for group in groups:
            if np.isnan(common_budget([group], x)):  # not recorded
                continue
            threshold = float(min(final))
            spend = [spend_to_reach(run, x, threshold, ks) for run in group.complete]
            reached = [budget for budget in spend if not np.isnan(budget)]
            mean = np.mean(reached) if reached else np.nan
            rows.append((x, group.label, threshold, len(spend), len(reached), mean))
    columns = ["axis", "label", "threshold", "seeds", "reached", "budget"]
    return pd.DataFrame(rows, columns=columns)


def spend_to_reach(run: Run, x: str, threshold: float, ks: Sequence[int] = (1,)) -> float:
    """Return the run's spend when pass@1 first reached `threshold`; NaN if it never did."""
    steps, spend = spend_at_evaluations(run, x)
    values = [_pass_at_1(run, step, ks) for step in steps]
    for i, value in enumerate(values):
        if value >= threshold:
            if i == 0:
                return float(spend[0])
            share = _position(values[i - 1], value, threshold)
            return float(spend[i - 1] + share * (spend[i] - spend[i - 1]))
    return float("nan")


def _pass_at_1(run: Run, step: int, ks: Sequence[int]) -> float:
    grid = scores_by_step(run, tuple(ks)).get("pass@1")
    if grid is None:  # the judge failed on everything
        return float("nan")
    values = grid.measured()[grid.seeds.index(step)]
    return float(pd.Series(values).mean())
