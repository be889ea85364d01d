"""From groups of runs to tables: the base and the end of training, and the way between.

Every table is a tidy DataFrame; means are over seeds, intervals are 95 % (`analysis.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from analysis.bootstrap import Interval, bootstrap_interval
from analysis.groups import Group, distinguish, spelling
from analysis.metrics import METRICS, judged, pass_scores, scores
from analysis.runs import Run

CURVE_KS = tuple(range(1, 11))
BUDGET = {
    "generated_tokens": "budget/generated_tokens",
    "reference_tokens": "budget/reference_tokens",
    "judged_programs": "budget/judged_programs",
    "optimiser_steps": "budget/optimiser_steps",
    "wall_s": "time/total_s",
}
# Each axis is the sum of those of its columns that were recorded. What the reference writes for
# SPO's initial values is charged like any other token.
X_AXES = {
    "step": ("step",),
    "generated_tokens": ("budget/generated_tokens", "budget/reference_tokens"),
    "wall_time": ("time/total_s",),
}
# Evaluation settings that do not touch the evaluation at step 0.
NOT_OF_BASE = ("eval.every", "eval.k")


@dataclass(frozen=True)
class Stage:
    """One row of the result table: a model (the base, or a group's at its end) as evaluated."""

    label: str
    step: int
    runs: tuple[Run, ...]

    @cached_property
    def scores(self) -> list[pd.DataFrame]:
        """`analysis.metrics.scores`, one frame per run."""
        return [scores(run.evaluation(self.step)) for run in self.runs]


def stages(groups: Sequence[Group]) -> list[Stage]:
    """The bases first (one for each model, task and way of evaluating), then each group's end."""
    ends = [Stage(g.label, g.last_step, g.complete) for g in groups if g.last_step > 0]
    return bases(groups) + ends


def bases(groups: Sequence[Group]) -> list[Stage]:
    """The evaluations at step 0; runs that share a base and a seed share its samples too."""
    found: dict[str, tuple[dict, dict]] = {}
    for group in groups:
        settings = {
            key: value
            for key, value in group.settings.items()
            if key.split(".")[0] in ("model", "task", "eval", "data_hash")
            and key not in NOT_OF_BASE
        }
        runs = {run.seed: run for run in group.runs if 0 in run.evaluated_steps}
        if runs:
            key = repr(sorted((key, spelling(value)) for key, value in settings.items()))
            found.setdefault(key, (settings, {}))[1].update(runs)
    labels = distinguish("base", [settings for settings, _ in found.values()])
    members = [tuple(runs.values()) for _, runs in found.values()]
    return [Stage(label, 0, runs) for label, runs in zip(labels, members, strict=True)]


def interval_of(per_run: Sequence[pd.DataFrame], metric: str) -> Interval:
    """Mean and interval of one metric, from one frame of per-problem scores for each seed."""
    frames = [frame[frame["metric"] == metric].set_index("problem") for frame in per_run]
    problems = sorted(set().union(*(frame.index for frame in frames)))
    if not problems:
        return Interval(float("nan"), float("nan"), float("nan"))
    values = np.stack([frame["value"].reindex(problems) for frame in frames])
    weights = np.stack([frame["weight"].reindex(problems).fillna(0.0) for frame in frames])
    return bootstrap_interval(values, weights)


def budget(run: Run) -> dict[str, float]:
    """What the run had spent by its last recorded step; NaN where it was not recorded."""
    last = run.metrics.iloc[-1] if len(run.metrics) else {}
    return {name: float(last.get(column, float("nan"))) for name, column in BUDGET.items()}


def result_table(all_stages: Iterable[Stage]) -> pd.DataFrame:
    """One row per stage: label, seeds, step, problems, samples per problem, and the metrics.

    Each metric has its interval in _low and _high, and in _problems the number of problems on which
    it is defined, mean over seeds. At the end of training also `gain` (pass@1 over that of the same
    runs at step 0) and the budget spent, mean over seeds.
    """
    return pd.DataFrame([_result_row(stage) for stage in all_stages])


def _result_row(stage: Stage) -> dict[str, object]:
    samples = [run.evaluation(stage.step) for run in stage.runs]
    row: dict[str, object] = {
        "label": stage.label,
        "seeds": len(stage.runs),
        "step": stage.step,
        "problems": max(sample["problem"].nunique() for sample in samples),
        "samples": max(map(samples_per_problem, samples)),
    }
    for metric in METRICS:
        interval = interval_of(stage.scores, metric.name)
        row[metric.name] = interval.mean
        row[f"{metric.name}_low"] = interval.low
        row[f"{metric.name}_high"] = interval.high
        measured = [int((frame["metric"] == metric.name).sum()) for frame in stage.scores]
        row[f"{metric.name}_problems"] = float(np.mean(measured))
    if stage.step > 0:
        row["gain"] = gain(stage)
        spent = [budget(run) for run in stage.runs]
        row |= {name: float(np.mean([each[name] for each in spent])) for name in BUDGET}
    return row


def gain(stage: Stage) -> float:
    """pass@1 of the stage over pass@1 of the same runs at step 0; NaN without one above 0."""
    if any(0 not in run.evaluated_steps for run in stage.runs):
        return float("nan")
    before = [accepted_share(run.evaluation(0)) for run in stage.runs]
    after = [accepted_share(run.evaluation(stage.step)) for run in stage.runs]
    return float(np.mean(after) / np.mean(before)) if np.mean(before) > 0 else float("nan")


def accepted_share(samples: pd.DataFrame) -> float:
    """pass@1: the share of accepted samples, mean over problems."""
    samples = judged(samples)
    return float((samples["verdict"] == "ACCEPTED").groupby(samples["problem"]).mean().mean())


def samples_per_problem(samples: pd.DataFrame) -> int:
    """The most samples that a problem has in this evaluation."""
    return int(samples.groupby("problem").size().max())


def run_table(groups: Sequence[Group]) -> pd.DataFrame:
    """One row per run, those that no average uses included, with where each comes from."""
    rows = []
    for group in groups:
        for run in (*group.runs, *group.repeats):
            last = run.evaluated_steps[-1] if run.evaluated_steps else None
            row: dict[str, object] = {
                "run": run.name,
                "group": group.label,
                "seed": run.seed,
                "status": run.status,
                "averaged": last is not None and run in group.complete,
                "last_evaluation": last,
                "trained_steps": int(run.metrics["step"].max()) if len(run.metrics) else 0,
                "pass@1_base": accepted_share(run.evaluation(0)) if last is not None else None,
                "pass@1": accepted_share(run.evaluation(last)) if last is not None else None,
            }
            row |= budget(run)
            for key in ("commit", "data_hash", "judge_version", "sandbox", "started", "ended"):
                row[key] = run.info.get(key)
            rows.append(row | {"path": str(run.path)})
    return pd.DataFrame(rows)


def pass_at_k_table(all_stages: Iterable[Stage]) -> pd.DataFrame:
    """Columns label, k, mean, low, high for k in CURVE_KS, as far as the samples reach."""
    rows = []
    for stage in all_stages:
        per_run = [pass_scores(run.evaluation(stage.step), CURVE_KS) for run in stage.runs]
        for k in CURVE_KS:
            interval = interval_of(per_run, f"pass@{k}")
            if not np.isnan(interval.mean):
                rows.append((stage.label, k, interval.mean, interval.low, interval.high))
    return pd.DataFrame(rows, columns=["label", "k", "mean", "low", "high"])


def evaluation_curve(groups: Sequence[Group]) -> pd.DataFrame:
    """pass@1 at every evaluation: label, seeds, the X_AXES, mean, low, high.

    An evaluation is averaged over the runs that have it, and placed at their mean budget.
    """
    rows = []
    for group in groups:
        for step in sorted({step for run in group.runs for step in run.evaluated_steps}):
            runs = [run for run in group.runs if step in run.evaluated_steps]
            interval = interval_of([pass_scores(r.evaluation(step), (1,)) for r in runs], "pass@1")
            row = {"label": group.label, "seeds": len(runs)}
            row |= {x: np.mean([spent_at(run, step, x) for run in runs]) for x in X_AXES}
            rows.append(row | {"mean": interval.mean, "low": interval.low, "high": interval.high})
    return pd.DataFrame(rows, columns=["label", "seeds", *X_AXES, "mean", "low", "high"])


def spent(run: Run, x: str) -> pd.Series:
    """The x-axis' value after each step of run.metrics; NaN where it was not recorded."""
    columns = [column for column in X_AXES[x] if column in run.metrics]
    if not columns:
        return pd.Series(np.nan, index=run.metrics.index)
    return run.metrics[columns].astype(float).sum(axis=1)


def spent_at(run: Run, step: int, x: str) -> float:
    """The x-axis' value when `step` steps had been trained; 0 at step 0."""
    if step == 0:
        return 0.0
    values = spent(run, x)[run.metrics["step"] <= step]
    return float(values.iloc[-1]) if len(values) else float("nan")


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
