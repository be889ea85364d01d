"""The comparison at equal budget, beside the one at equal steps, by interpolation.

The budget of an axis is the least that any run had spent by its last evaluation, so that nothing is
extrapolated. Between two evaluations of a run each problem's score is taken to change linearly.
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
from analysis.stats.curves import X_AXES, spent_at
from analysis.stats.differences import Pair, difference_table, pairs, tier_table
from analysis.stats.tables import AREA, grid_interval, named

AXES = tuple(x for x in X_AXES if x != "step")


class AtBudget:
    """A group's runs when each had spent `budget` of axis `x`."""

    def __init__(self, group: Group, x: str, budget: float, ks: Sequence[int]) -> None:
        self.label, self.seeds = group.label, tuple(run.seed for run in group.complete)
        parts = [scores_at(run, x, budget, tuple(ks)) for run in group.complete]
        self.grids = stack_seeds(self.seeds, parts)


@memoize
def way(run: Run, x: str) -> tuple[list[int], np.ndarray]:
    """The run's evaluated steps, and what it had spent at each; without those not recorded."""
    steps = run.evaluated_steps
    at = np.array([spent_at(run, step, x) for step in steps])
    known = ~np.isnan(at)
    return [step for step, here in zip(steps, known, strict=True) if here], at[known]


def common_budget(groups: Sequence[Group], x: str) -> float:
    """The least that any run had spent at its last evaluation; NaN where one kept no account."""
    ends = [spent_at(run, g.last_step, x) for g in groups if g.last_step for run in g.complete]
    return float(np.min(ends)) if ends else float("nan")


def scores_at(run: Run, x: str, budget: float, ks: tuple[int, ...]) -> dict[str, ProblemScores]:
    """Per-problem scores at `budget`, and AREA: pass@1 averaged over the axis from 0 to there.

    A score that is defined at only one of the two evaluations beside the budget is left out. Of
    evaluations between which nothing was spent the last counts.
    """
    steps, at = way(run, x)
    after = int(np.searchsorted(at, budget, side="right").clip(1, len(at) - 1))
    share = _share(at[after - 1], at[after], budget)
    places = np.append(at[:after], budget)
    found = {}
    for metric, grid in scores_by_step(run, ks).items():
        rows = np.searchsorted(grid.seeds, steps)
        values, weights = grid.values[rows], grid.weights[rows]
        value, weight = (
            (1 - share) * part[after - 1] + share * part[after] for part in (values, weights)
        )
        defined = (weights[after - 1 : after + 1] > 0).all(axis=0)
        found[metric] = _row(grid, defined, value, weight)
        if metric == "pass@1":
            way_there = np.vstack([values[:after], value])
            area = np.trapezoid(way_there, places, axis=0) / budget
            defined &= (weights[:after] > 0).all(axis=0)
            found[AREA] = _row(grid, defined, area, np.ones_like(area))
    return found


def _row(
    grid: ScoreGrid, defined: np.ndarray, value: np.ndarray, weight: np.ndarray
) -> ProblemScores:
    """Of the problems on which it is defined."""
    problems = np.array(grid.problems, dtype=object)[defined]
    return ProblemScores(problems, value[defined], weight[defined])


def _share(before: float, after: float, budget: float) -> float:
    return float((budget - before) / (after - before)) if after > before else 1.0


def equal_budget_tables(
    groups: Sequence[Group], ks: Sequence[int]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """equal_budget.csv (axis, budget, label, metric, mean, low, high, tier) and
    equal_budget_differences.csv (axis, budget, and the columns of differences.csv).

    A group that spent nothing on an axis (`algo=sft` generates no tokens), or of which a run kept
    no account, has no rows there.
    """
    means, differences = [], []
    groups = [group for group in groups if group.last_step > 0]
    for x in AXES:
        spending = [group for group in groups if common_budget([group], x) > 0]
        if not spending:
            continue
        budget = common_budget(spending, x)
        there = [AtBudget(group, x, budget, ks) for group in spending]
        metrics = dict.fromkeys(metric for group in there for metric in group.grids)
        if not metrics:  # the judge failed on everything
            continue
        found = pairs(there, metrics)
        means.append(_means(there, found).assign(axis=x, budget=budget))
        differences.append(difference_table(found).assign(axis=x, budget=budget))
    return _first(means), _first(differences)


def _means(there: Sequence[ScoredGroup], found: Sequence[Pair]) -> pd.DataFrame:
    rows = [
        {"label": group.label, "metric": metric}
        | {
            name.removeprefix("_") or "mean": end
            for name, end in named(grid_interval(grid, metric), "").items()
        }
        for group in there
        for metric, grid in group.grids.items()
    ]
    return pd.DataFrame(rows).merge(tier_table(there, found), how="left", on=["label", "metric"])


def _first(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    if not tables:
        return pd.DataFrame()
    whole = pd.concat(tables, ignore_index=True)
    return whole[["axis", "budget", *whole.columns.drop(["axis", "budget"])]]


def threshold_table(groups: Sequence[Group], ks: Sequence[int] = (1,)) -> pd.DataFrame:
    """thresholds.csv: axis, label, threshold, seeds, reached, budget.

    The threshold is the least pass@1 at which a group ended, which all are so to be asked for;
    `reached` is how many seeds came there, `budget` what these had spent when they first did.
    """
    groups = [group for group in groups if group.last_step > 0]
    ends = [
        np.mean([_pass(run, group.last_step, ks) for run in group.complete]) for group in groups
    ]
    rows = []
    for x in X_AXES:
        for group in groups:
            spent = [first_at(run, x, min(ends), ks) for run in group.complete]
            reached = [one for one in spent if not np.isnan(one)]
            mean = np.mean(reached) if reached else np.nan
            rows.append((x, group.label, min(ends), len(spent), len(reached), mean))
    columns = ["axis", "label", "threshold", "seeds", "reached", "budget"]
    return pd.DataFrame(rows, columns=columns)


def first_at(run: Run, x: str, threshold: float, ks: Sequence[int] = (1,)) -> float:
    """What the run had spent when pass@1 first was `threshold`; NaN where it never was."""
    steps, at = way(run, x)
    values = [_pass(run, step, ks) for step in steps]
    for i, value in enumerate(values):
        if value >= threshold:
            if i == 0:
                return float(at[0])
            share = _share(values[i - 1], value, threshold)
            return float(at[i - 1] + share * (at[i] - at[i - 1]))
    return float("nan")


def _pass(run: Run, step: int, ks: Sequence[int]) -> float:
    grid = scores_by_step(run, tuple(ks)).get("pass@1")
    if grid is None:  # the judge failed on everything
        return float("nan")
    values = grid.measured()[grid.seeds.index(step)]
    return float(pd.Series(values).mean())
