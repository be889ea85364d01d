"""The way between the base and the end: rewards and evaluations against what was spent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.load.compute import memoize
from analysis.load.groups import Group
from analysis.load.run_folders import Run
from analysis.metrics.definitions import DISTINCT
from analysis.metrics.scores import scores_at_step, stack_seeds
from analysis.stats.tables import grid_interval, named

# Each axis is the sum of those of its columns that were recorded. What the reference writes for
# SPO's initial values is charged like any other token; evaluations are not charged.
X_AXES = {
    "step": ("step",),
    "generated_tokens": ("budget/generated_tokens", "budget/reference_tokens"),
    "judged_programs": ("budget/judged_programs",),
    "wall_time": ("time/total_s",),
}
NOT_CHARGED = {"wall_time": "time/evaluate_s"}
KL_STEPS = 10


def window(groups: Sequence[Group]) -> int:
    """Over how many steps rewards are averaged, a twentieth of the longest run."""
    longest = max((len(run.metrics) for group in groups for run in group.runs), default=0)
    return max(1, longest // 20)


def evaluation_curve(groups: Sequence[Group], ks: Sequence[int] = (1,)) -> pd.DataFrame:
    """Every evaluation: label, seeds, the X_AXES, kl_ref, and pass@1, pass@k for the greatest k and
    DISTINCT with _low and _high.

    An evaluation is averaged over the runs that have it, and placed at their mean budget and KL.
    """
    rows = []
    measured = dict.fromkeys(["pass@1", f"pass@{ks[-1]}", DISTINCT])
    for group in groups:
        for step in sorted({step for run in group.runs for step in run.evaluated_steps}):
            runs = [run for run in group.runs if step in run.evaluated_steps]
            row = {"label": group.label, "seeds": len(runs)}
            row |= {x: np.mean([spent_at(run, step, x) for run in runs]) for x in X_AXES}
            row["kl_ref"] = np.mean([kl_at(run, step) for run in runs])
            found = stack_seeds(
                range(len(runs)), [scores_at_step(run, step, tuple(ks)) for run in runs]
            )
            for metric in measured:
                row |= named(grid_interval(found.get(metric), metric), metric)
            rows.append(row)
    columns = [f"{metric}{end}" for metric in measured for end in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=["label", "seeds", *X_AXES, "kl_ref", *columns])


@memoize
def spent(run: Run, x: str) -> pd.Series:
    """The x-axis' value after each step of run.metrics; NaN where it was not recorded."""
    columns = [column for column in X_AXES[x] if column in run.metrics]
    if not columns:
        return pd.Series(np.nan, index=run.metrics.index)
    total = run.metrics[columns].astype(float).sum(axis=1)
    if NOT_CHARGED.get(x) in run.metrics:
        total -= run.metrics[NOT_CHARGED[x]].astype(float).fillna(0.0)
    return total


def spent_at(run: Run, step: int, x: str) -> float:
    """The x-axis' value when `step` steps had been trained; 0 at step 0."""
    if step == 0:
        return 0.0
    place = int(run.trained_steps.searchsorted(step, side="right"))
    return float(spent(run, x).to_numpy()[place - 1]) if place else float("nan")


def kl_at(run: Run, step: int) -> float:
    """KL(policy, reference) of whole responses in nats after `step` steps; NaN if not recorded.

    `eval/kl_ref` was measured at the evaluation. A run without it has the loss's own `kl_ref`, of
    which the mean of the last KL_STEPS steps is taken; a loss without a reference has none.
    """
    if step == 0:
        return 0.0
    so_far = run.metrics[run.metrics["step"] <= step]
    if "eval/kl_ref" in so_far:
        at = so_far.loc[so_far["step"] == step, "eval/kl_ref"].astype(float)
        return float(at.iloc[0]) if len(at) else float("nan")
    if "kl_ref" in so_far:
        return float(so_far["kl_ref"].tail(KL_STEPS).astype(float).mean())
    return float("nan")


def reward_curve(groups: Sequence[Group], window: int) -> pd.DataFrame:
    """Training reward, mean of the last `window` steps: label, the X_AXES, mean, low, high.

    `low` and `high` are the least and the greatest over seeds; no interval is claimed. Steps that
    not every run of the group has reached are averaged over those that have.
    """
    frames = []
    for group in groups:
        for run in group.runs:
            frame = pd.DataFrame({x: spent(run, x) for x in X_AXES})
            reward = run.metrics["reward_mean"].astype(float)
            frame["reward"] = reward.rolling(window, min_periods=1).mean()
            frames.append(frame.assign(label=group.label, at=run.metrics["step"]))
    steps = pd.concat(frames).groupby(["label", "at"])
    reward = steps["reward"].agg(["mean", "min", "max"])
    curve = steps[list(X_AXES)].mean().join(reward)
    return curve.rename(columns={"min": "low", "max": "high"}).reset_index().drop(columns="at")
