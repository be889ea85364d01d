"""What a run records at every training step, as curves over the budget spent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.load.groups import Group
from analysis.load.run_folders import Run
from analysis.stats.curves import X_AXES, cumulative_spend

MOST_STEPS = 1000  # of a group; more are thinned evenly, since neighbours share their window


class TrainingMetric(NamedTuple):
    """A column of metrics.parquet to draw: its name, its title, and the range that is shown."""

    name: str
    title: str
    low: float = -np.inf
    high: float = np.inf


TRAINING_METRICS = (
    TrainingMetric("reward_mean", "reward"),
    TrainingMetric("loss", "loss"),
    TrainingMetric("entropy", "entropy, nats per token"),
    TrainingMetric("response_tokens_mean", "response length, tokens"),
    TrainingMetric("truncated_share", "truncated responses, share", high=1.02),
    TrainingMetric("kl_ref", "KL to the reference, nats per response"),
    TrainingMetric("grad_norm", "gradient norm before clipping"),
    TrainingMetric("step_clipped", "steps with a clipped gradient, share", high=1.02),
    TrainingMetric("clip_share", "tokens beyond the ratio's bound, share", high=1.02),
    TrainingMetric("weight/accepted", "gradient weight on accepted responses", high=1.02),
    TrainingMetric("weight/rejected", "gradient weight on rejected responses", high=1.02),
    # A critic that begins far off has values like −30, beside which the rest would be a flat line.
    TrainingMetric("value/explained_variance", "critic's explained variance", -1.0, 1.02),
)


def training_curve(groups: Sequence[Group], window: int) -> pd.DataFrame:
    """Return training.csv, a row per group and step, each metric averaged over `window` steps.

    No rows if no run recorded any of TRAINING_METRICS (a study that was packed without them).
    Columns: label, seeds, the X_AXES, and each of TRAINING_METRICS that any run recorded: its mean
    over seeds, and in _low and _high the least and the greatest seed, not an interval. A window
    averages the values that it has, and a step without a value of its own has none. Steps that not
    all runs of a group have reached are averaged over those that have.
    """
    runs = [run for group in groups for run in group.runs]
    names = [m.name for m in TRAINING_METRICS if any(_recorded(run, m.name) for run in runs)]
    parts = [_group_curve(group, names, window) for group in groups] if names else []
    columns = ["label", "seeds", *X_AXES]
    columns += [f"{name}{suffix}" for name in names for suffix in ("", "_low", "_high")]
    kept = [part for part in parts if len(part)]
    return (pd.concat(kept) if kept else pd.DataFrame()).reindex(columns=columns)


def _recorded(run: Run, name: str) -> bool:
    return name in run.metrics and bool(run.metrics[name].notna().any())


def _group_curve(group: Group, names: list[str], window: int) -> pd.DataFrame:
    """Return the rows of one group."""
    runs = [run for run in group.runs if len(run.metrics)]
    if not runs:
        return pd.DataFrame()
    frames = []
    for run in runs:
        frame = pd.DataFrame({x: cumulative_spend(run, x) for x in X_AXES})
        for name in names:
            frame[name] = _smoothed(run, name, window)
        frames.append(frame.assign(at=run.metrics["step"]))
    by_step = pd.concat(frames).groupby("at")
    curve = by_step[list(X_AXES)].mean()
    over_seeds = {"": by_step[names].mean()}
    over_seeds |= {"_low": by_step[names].min(), "_high": by_step[names].max()}
    parts = [table.add_suffix(suffix) for suffix, table in over_seeds.items()]
    curve = pd.concat([curve, *parts], axis=1).assign(label=group.label, seeds=by_step.size())
    return curve.iloc[thinned(len(curve), MOST_STEPS)].reset_index(drop=True)


def _smoothed(run: Run, name: str, window: int) -> pd.Series:
    """Return the mean of a column over the last `window` steps; NaN if it has no value there."""
    if name not in run.metrics:
        return pd.Series(np.nan, index=run.metrics.index)
    values = run.metrics[name].astype(float).replace([np.inf, -np.inf], np.nan)
    return values.rolling(window, min_periods=1).mean().where(values.notna())


def thinned(length: int, most: int) -> np.ndarray:
    """Return at most `most` evenly spaced places of a sequence, with its first and last."""
    return np.unique(np.linspace(0, length - 1, most).astype(int))
