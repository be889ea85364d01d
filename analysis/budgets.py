"""Scores against what was spent: curves over budgets, equal budgets, and training curves.

The comparison at equal budget stands beside the one at equal steps. The budget of an axis is the
least that any run had spent by its last evaluation, so that nothing is extrapolated. Between two
evaluations of a run, each problem's score is interpolated linearly.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import metrics
from analysis.comparisons import difference_table, paired_differences, tier_table
from analysis.groups import Group, GroupScores
from analysis.intervals import grid_interval, interval_columns
from analysis.runs import Run, memoize, parse_yaml

# Columns whose sum is each x-axis, as far as they were recorded. The reference's tokens for SPO's
# initial values are charged like any others, and so are continuations that estimate values of
# prefixes; evaluations are not charged.
X_AXES = {
    "step": ("step",),
    "generated_tokens": (
        *("budget/generated_tokens", "budget/reference_tokens", "budget/prefix_tokens"),
    ),
    "judged_programs": ("budget/judged_programs",),
    "flops": ("budget/flops",),
    "wall_time": ("time/total_s",),
}
COLUMNS = parse_yaml(Path(__file__).with_name("columns.yaml").read_text(encoding="utf-8"))
BUDGET_TITLES: dict[str, str] = COLUMNS["budget"]
OFFLINE_TITLES: dict[str, str] = COLUMNS["offline"]
PHASE_TITLES: dict[str, str] = COLUMNS["phase"]
AREA = "pass@1, mean so far"  # the area under its curve over the budget spent, over the budget
NAN = float("nan")
KL_STEPS = 10
WINDOWS = 20  # over which the longest run's training curves are averaged
MOST_STEPS = 1000  # of a training curve; more are thinned evenly


# Budgets of a run.


def final_budget(run: Run) -> dict[str, float]:
    """Return the run's spend at its last recorded step; NaN where it was not recorded.

    Evaluations and their time are not charged.
    """
    last = run.metrics.iloc[-1] if len(run.metrics) else pd.Series(dtype=float)
    spend = {name: float(last.get(f"budget/{name}", np.nan)) for name in BUDGET_TITLES}
    wall = float(last.get("time/total_s", np.nan))
    return spend | {"wall_s": wall - float(last.get("time/evaluate_s", 0.0))}


@memoize
def cumulative_spend(run: Run, x: str) -> pd.Series:
    """Return the value on axis x after each step of `run.metrics`; NaN if not recorded."""
    columns = [column for column in X_AXES[x] if column in run.metrics]
    if not columns:
        return pd.Series(np.nan, index=run.metrics.index)
    total = run.metrics[columns].astype(float).sum(axis=1, min_count=1)
    if x == "wall_time" and "time/evaluate_s" in run.metrics:
        total -= run.metrics["time/evaluate_s"].astype(float).fillna(0.0)
    return total


def spend_at_step(run: Run, step: int, x: str) -> float:
    """Return the value on axis x after `step` training steps; 0 at step 0."""
    if step == 0:
        return 0.0
    rows = int(run.trained_steps.searchsorted(step, side="right"))
    return float(cumulative_spend(run, x).to_numpy()[rows - 1]) if rows else NAN


@memoize
def spend_at_evaluations(run: Run, x: str) -> tuple[list[int], np.ndarray]:
    """Return the run's evaluated steps and its spend at each, where it was recorded."""
    spend = np.array([spend_at_step(run, step, x) for step in run.evaluated_steps])
    known = ~np.isnan(spend)
    return np.array(run.evaluated_steps)[known].tolist(), spend[known]


def common_budget(groups: Sequence[Group], x: str) -> float:
    """Return the least spend of any run at its last evaluation; NaN if a run did not record it."""
    spend = [
        spend_at_step(run, g.last_step, x) for g in groups if g.last_step for run in g.complete
    ]
    return float(np.min(spend)) if spend else NAN


# Evaluations over a budget.


def evaluation_curve(groups: Sequence[Group], ks: Sequence[int] = (1,)) -> pd.DataFrame:
    """Return curve.csv, a row per evaluation step of a group.

    Columns: label, seeds, the X_AXES, kl_ref, and pass@1, pass@k for the greatest k and DISTINCT
    with _low and _high. An evaluation is averaged over the runs that have it, and placed at their
    mean budget and KL.
    """
    rows = []
    names = dict.fromkeys(["pass@1", f"pass@{ks[-1]}", metrics.DISTINCT])
    for group in groups:
        for step in sorted({step for run in group.runs for step in run.evaluated_steps}):
            runs = [run for run in group.runs if step in run.evaluated_steps]
            row: dict[str, object] = {"label": group.label, "seeds": len(runs)}
            row |= {x: np.mean([spend_at_step(run, step, x) for run in runs]) for x in X_AXES}
            row["kl_ref"] = np.mean([kl_at_step(run, step) for run in runs])
            scores = [metrics.scores_at_step(run, step, tuple(ks)) for run in runs]
            grids = metrics.stack_seeds(range(len(runs)), scores)
            for metric in names:
                row |= interval_columns(grids.get(metric), metric)
            rows.append(row)
    columns = [f"{metric}{suffix}" for metric in names for suffix in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=["label", "seeds", *X_AXES, "kl_ref", *columns])


def kl_at_step(run: Run, step: int) -> float:
    """Return KL(policy, base) of whole responses in nats after `step` steps, or NaN.

    `eval/kl_ref` was measured at the evaluation. Without it, the result is the mean of the loss's
    own `kl_ref` over the last KL_STEPS steps, unless its reference moves away from the base. A loss
    without a reference has neither.
    """
    if step == 0:
        return 0.0
    so_far = run.metrics[run.metrics["step"] <= step]
    if "eval/kl_ref" in so_far:
        measured = so_far.loc[so_far["step"] == step, "eval/kl_ref"].astype(float)
        return float(measured.iloc[0]) if len(measured) else NAN
    moves = (run.config.get("train") or {}).get("reference_every") is not None
    if "kl_ref" in so_far and not moves:
        return float(so_far["kl_ref"].tail(KL_STEPS).astype(float).mean())
    return NAN


# Equal budgets.


def scores_at_budget(
    run: Run, x: str, budget: float, ks: tuple[int, ...]
) -> dict[str, metrics.ProblemScores]:
    """Return the scores per problem at `budget`, and AREA: pass@1 averaged over the axis up to it.

    A score that is undefined at one of the two evaluations beside the budget is left out. Of
    evaluations between which nothing was spent, the last one counts.
    """
    steps, spend = spend_at_evaluations(run, x)
    after = int(np.searchsorted(spend, budget, side="right").clip(1, len(spend) - 1))
    share = _position(spend[after - 1], spend[after], budget)
    points = np.append(spend[:after], budget)
    rows = [run.evaluated_steps.index(step) for step in steps]
    scores = {}
    for metric, grid in metrics.scores_by_step(run, ks).items():
        names, values = np.array(grid.problems, object), grid.values[rows]
        weights = grid.weights[rows]
        value, weight = (
            (1 - share) * part[after - 1] + share * part[after] for part in (values, weights)
        )
        defined = np.all(weights[after - 1 : after + 1] > 0, axis=0)
        scores[metric] = metrics.ProblemScores(names[defined], value[defined], weight[defined])
        if metric == "pass@1":
            area = np.trapezoid(np.vstack([values[:after], value]), points, axis=0) / budget
            defined = defined & np.all(weights[:after] > 0, axis=0)
            scores[AREA] = metrics.ProblemScores(
                names[defined], area[defined], np.ones(defined.sum())
            )
    return scores


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
    means, differences = [pd.DataFrame()], [pd.DataFrame()]
    for x in list(X_AXES)[1:]:
        spending = [group for group in groups if group.last_step > 0 < common_budget([group], x)]
        budget = common_budget(spending, x)
        at_budget = []
        for group in spending:
            seeds = tuple(run.seed for run in group.complete)
            scores = [scores_at_budget(run, x, budget, tuple(ks)) for run in group.complete]
            at_budget.append(GroupScores(group.label, seeds, metrics.stack_seeds(seeds, scores)))
        rows = []
        for one in at_budget:
            for metric, grid in one.grids.items():
                rows.append((x, budget, one.label, metric, *grid_interval(grid, metric)))
        if rows:  # there are none if the judge failed on everything
            pairs = paired_differences(at_budget, dict.fromkeys(row[3] for row in rows))
            columns = ["axis", "budget", "label", "metric", "mean", "low", "high"]
            table, tiers = pd.DataFrame(rows, columns=columns), tier_table(at_budget, pairs)
            means.append(table.merge(tiers, how="left", on=["label", "metric"]))
            of_pairs = difference_table(pairs)
            of_pairs.insert(0, "axis", x)
            of_pairs.insert(1, "budget", budget)
            differences.append(of_pairs)
    first, second = (pd.concat(p[1:] or p, ignore_index=True) for p in (means, differences))
    return first, second


def threshold_table(groups: Sequence[Group]) -> pd.DataFrame:
    """Return thresholds.csv: axis, label, threshold, seeds, reached, budget.

    The threshold is the least final pass@1 of any group, so that all groups can be compared. A
    group has no rows on an axis that a run of it did not record. `reached` is the number of seeds
    that reached it, and `budget` their mean spend when they first did.
    """
    groups = [group for group in groups if group.last_step > 0]
    final = [
        np.mean([metrics.accepted_share(run, group.last_step) for run in group.complete])
        for group in groups
    ]
    rows = []
    for x in X_AXES:
        for group in (group for group in groups if not np.isnan(common_budget([group], x))):
            threshold = float(min(final))
            spend = [spend_to_reach(run, x, threshold) for run in group.complete]
            reached = [budget for budget in spend if not np.isnan(budget)]
            mean = np.mean(reached) if reached else np.nan
            rows.append((x, group.label, threshold, len(spend), len(reached), mean))
    columns = ["axis", "label", "threshold", "seeds", "reached", "budget"]
    return pd.DataFrame(rows, columns=columns)


def spend_to_reach(run: Run, x: str, threshold: float) -> float:
    """Return the run's spend when pass@1 first reached `threshold`; NaN if it never did."""
    steps, spend = spend_at_evaluations(run, x)
    values = [metrics.accepted_share(run, step) for step in steps]
    for i, value in enumerate(values):
        if value >= threshold:
            if i == 0:
                return float(spend[0])
            share = _position(values[i - 1], value, threshold)
            return float(spend[i - 1] + share * (spend[i] - spend[i - 1]))
    return NAN


def curve_score(run: Run) -> float:
    """Return the area under (pass@1 + pass@10)/2 over the run's steps, divided by these, in [0, 1].

    The last evaluation alone rewards a run that is good at one moment of one metric. The area also
    counts how early a run gets there. pass@k is the unbiased estimate from the run's samples, so
    each problem needs ten or more. NaN unless the curve goes from the base model, at step 0, to the
    run's last step: the area under a part of it is no comparable number.
    """
    steps, grids = run.evaluated_steps, metrics.scores_by_step(run, (1, 10))
    if len(steps) < 2 or steps[0] != 0 or steps[-1] != run.config["steps"]:
        return NAN
    means = []
    for i in range(len(steps)):
        rows = [grids[m].row(i) for m in ("pass@1", "pass@10") if m in grids]
        defined = [row.mean() for row in rows if len(row.values)]
        means.append(float(np.mean(defined)) if len(defined) == 2 else NAN)
    return float(np.trapezoid(means, steps) / (steps[-1] - steps[0]))


# What a run records at every training step.


class TrainingMetric(NamedTuple):
    """A column of metrics.parquet to draw: its name, its title, and the range that is shown."""

    name: str
    title: str
    low: float = -np.inf
    high: float = np.inf


TRAINING_METRICS = tuple(TrainingMetric(**one) for one in COLUMNS["training"])


def training_curve(groups: Sequence[Group], window: int) -> pd.DataFrame:
    """Return training.csv, a row per group and step, each metric averaged over `window` steps.

    No rows if no run recorded any of TRAINING_METRICS (a study that was packed without them).
    Columns: label, seeds, the X_AXES, and each of TRAINING_METRICS that any run recorded: its mean
    over seeds, and in _low and _high the least and the greatest seed, not an interval. A window
    averages the values that it has, and a step without a value of its own has none. Steps that not
    all runs of a group have reached are averaged over those that have.
    """
    runs = [run for group in groups for run in group.runs]
    recorded = {name for run in runs for name in run.metrics if run.metrics[name].notna().any()}
    names = [metric.name for metric in TRAINING_METRICS if metric.name in recorded]
    columns = [f"{name}{suffix}" for name in names for suffix in ("", "_low", "_high")]
    parts = [pd.DataFrame()]
    for group in groups if names else ():
        frames = []
        for run in (run for run in group.runs if len(run.metrics)):
            frame = pd.DataFrame({x: cumulative_spend(run, x) for x in X_AXES})
            for name in names:
                values = run.metrics.get(name, pd.Series(np.nan, index=run.metrics.index))
                values = values.astype(float).replace([np.inf, -np.inf], np.nan)
                smooth = values.rolling(window, min_periods=1).mean()
                frame[name] = smooth.where(values.notna())
            frames.append(frame.assign(at=run.metrics["step"]))
        if frames:
            by_step = pd.concat(frames).groupby("at")
            over_seeds = {"": by_step[names].mean()}
            over_seeds |= {"_low": by_step[names].min(), "_high": by_step[names].max()}
            several = [table.add_suffix(suffix) for suffix, table in over_seeds.items()]
            curve = pd.concat([by_step[list(X_AXES)].mean(), *several], axis=1)
            curve = curve.assign(label=group.label, seeds=by_step.size())
            parts.append(curve.iloc[thinned(len(curve), MOST_STEPS)].reset_index(drop=True))
    table = pd.concat(parts[1:] or parts)
    return table.reindex(columns=["label", "seeds", *X_AXES, *columns])


def thinned(length: int, most: int) -> np.ndarray:
    """Return at most `most` evenly spaced places of a sequence, with its first and last."""
    return np.unique(np.linspace(0, length - 1, most).astype(int))


def smoothing_window(groups: Sequence[Group]) -> int:
    """Return the steps over which training curves are averaged: 1/WINDOWS of the longest run."""
    longest = max((len(run.metrics) for group in groups for run in group.runs), default=0)
    return max(1, longest // WINDOWS)
