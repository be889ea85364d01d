"""Training curves: rewards and evaluations against what was spent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.load.compute import memoize
from analysis.load.groups import Group
from analysis.load.run_folders import Run
from analysis.metrics.definitions import DISTINCT
from analysis.metrics.scores import scores_at_step, stack_seeds
from analysis.stats.tables import grid_interval, interval_columns

# Columns whose sum is each x-axis, as far as they were recorded. The reference's tokens for SPO's
# initial values are charged like any others; evaluations are not charged.
X_AXES = {
    "step": ("step",),
    "generated_tokens": ("budget/generated_tokens", "budget/reference_tokens"),
    "judged_programs": ("budget/judged_programs",),
    "flops": ("budget/flops",),
    "wall_time": ("time/total_s",),
}
NOT_CHARGED = {"wall_time": "time/evaluate_s"}
KL_STEPS = 10
WINDOWS = 20  # over which the longest run's rewards are averaged


def smoothing_window(groups: Sequence[Group]) -> int:
    """Return the number of steps over which rewards are averaged: 1/WINDOWS of the longest run."""
    longest = max((len(run.metrics) for group in groups for run in group.runs), default=0)
    return max(1, longest // WINDOWS)


def evaluation_curve(groups: Sequence[Group], ks: Sequence[int] = (1,)) -> pd.DataFrame:
    """Return curve.csv, a row per evaluation step of a group.

    Columns: label, seeds, the X_AXES, kl_ref, and pass@1, pass@k for the greatest k and DISTINCT
    with _low and _high. An evaluation is averaged over the runs that have it, and placed at their
    mean budget and KL.
    """
    rows = []
    metrics = dict.fromkeys(["pass@1", f"pass@{ks[-1]}", DISTINCT])
    for group in groups:
        for step in sorted({step for run in group.runs for step in run.evaluated_steps}):
            runs = [run for run in group.runs if step in run.evaluated_steps]
            row: dict[str, object] = {"label": group.label, "seeds": len(runs)}
            row |= {x: np.mean([spend_at_step(run, step, x) for run in runs]) for x in X_AXES}
            row["kl_ref"] = np.mean([kl_at_step(run, step) for run in runs])
            scores = [scores_at_step(run, step, tuple(ks)) for run in runs]
            grids = stack_seeds(range(len(runs)), scores)
            for metric in metrics:
                row |= interval_columns(grid_interval(grids.get(metric), metric), metric)
            rows.append(row)
    columns = [f"{metric}{suffix}" for metric in metrics for suffix in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=["label", "seeds", *X_AXES, "kl_ref", *columns])


@memoize
def cumulative_spend(run: Run, x: str) -> pd.Series:
    """Return the value on axis x after each step of `run.metrics`; NaN if not recorded."""
    columns = [column for column in X_AXES[x] if column in run.metrics]
    if not columns:
        return pd.Series(np.nan, index=run.metrics.index)
    total = run.metrics[columns].astype(float).sum(axis=1, min_count=1)
    if NOT_CHARGED.get(x) in run.metrics:
        total -= run.metrics[NOT_CHARGED[x]].astype(float).fillna(0.0)
    return total


def spend_at_step(run: Run, step: int, x: str) -> float:
    """Return the value on axis x after `step` training steps; 0 at step 0."""
    if step == 0:
        return 0.0
    rows = int(run.trained_steps.searchsorted(step, side="right"))
    return float(cumulative_spend(run, x).to_numpy()[rows - 1]) if rows else float("nan")


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
        return float(measured.iloc[0]) if len(measured) else float("nan")
    moves = (run.config.get("train") or {}).get("reference_every") is not None
    if "kl_ref" in so_far and not moves:
        return float(so_far["kl_ref"].tail(KL_STEPS).astype(float).mean())
    return float("nan")


def reward_curve(groups: Sequence[Group], window: int) -> pd.DataFrame:
    """Return the training reward averaged over `window` steps: label, the X_AXES, mean, low, high.

    `low` and `high` are the least and the greatest of the seeds, not an interval. Steps that not
    all runs of a group have reached are averaged over those that have.
    """
    frames = []
    for group in groups:
        for run in group.runs:
            frame = pd.DataFrame({x: cumulative_spend(run, x) for x in X_AXES})
            reward = run.metrics["reward_mean"].astype(float)
            frame["reward"] = reward.rolling(window, min_periods=1).mean()
            frames.append(frame.assign(label=group.label, at=run.metrics["step"]))
    by_step = pd.concat(frames).groupby(["label", "at"])
    over_seeds = by_step["reward"].agg(["mean", "min", "max"])
    curve = by_step[list(X_AXES)].mean().join(over_seeds)
    return curve.rename(columns={"min": "low", "max": "high"}).reset_index().drop(columns="at")
