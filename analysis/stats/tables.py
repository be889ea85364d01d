"""Tables of models and groups: results, runs, pass@k, difficulties, verdicts and costs.

Every table is a tidy DataFrame. Means are over seeds, intervals are 95 %
(`analysis.stats.intervals`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from analysis.load.groups import Group
from analysis.load.run_folders import Run
from analysis.load.settings import sandbox
from analysis.metrics.definitions import (
    PARTIAL,
    Metric,
    further_metrics,
    metric_bounds,
    reported_metrics,
)
from analysis.metrics.evaluated_models import EvaluatedModel, common_problems
from analysis.metrics.scores import ScoreGrid, accepted_share, pass_scores, stack_seeds
from analysis.stats.intervals import Interval, interquartile_mean, interval, performance_profile

BUDGET_TITLES = {  # counters of a run's budget
    "generated_tokens": "generated tokens",
    "reference_tokens": "reference tokens",
    "judged_programs": "judged programs",
    "judged_tests": "judged tests",
    "optimiser_steps": "optimiser steps",
    "flops": "FLOPs",
}
BUDGET_COLUMNS = {name: f"budget/{name}" for name in BUDGET_TITLES} | {"wall_s": "time/total_s"}
AREA = "pass@1, mean so far"  # the area under its curve over the budget spent, over the budget
PHASE_TITLES = {
    "generate": "generation",
    "judge": "judging",
    "reference": "base model",
    "train": "training",
    "sync": "weights and checks",
}


def grid_interval(grid: ScoreGrid | None, metric: str) -> Interval:
    """Return the mean and interval of a metric's scores; NaN if there are none."""
    if grid is None:
        return Interval(float("nan"), float("nan"), float("nan"))
    return interval(grid.values, grid.weights, bounds=metric_bounds(metric))


def interval_columns(interval: Interval, name: str) -> dict[str, float]:
    """Return an interval as the columns name, name_low and name_high."""
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def final_budget(run: Run) -> dict[str, float]:
    """Return the run's spend at its last recorded step; NaN where it was not recorded.

    Evaluations and their time are not charged.
    """
    last = run.metrics.iloc[-1] if len(run.metrics) else pd.Series(dtype=float)
    spend = {name: float(last.get(column, np.nan)) for name, column in BUDGET_COLUMNS.items()}
    return spend | {"wall_s": spend["wall_s"] - float(last.get("time/evaluate_s", 0.0))}


# Results of models.


def result_table(models: Sequence[EvaluatedModel]) -> pd.DataFrame:
    """Return table.csv, a row per model: label, seeds, step, problems, samples, and the metrics.

    Each metric has its interval in _low and _high. _problems is the number of problems on which it
    is defined, mean over seeds. _iqm is the interquartile mean over seeds and problems (as
    rliable's). _common, of metrics that few problems may have, is the mean over the problems that
    all trained models have, and _common_problems is their number. Trained models also have
    `gain_over_base` as `gain`, and the budget spent, mean over seeds. Metrics at further
    temperatures follow, as pass@10 (T=1).
    """
    common = {metric: common_problems(models, metric) for metric in PARTIAL}
    rows = (_result_row(model) | _common_columns(model, common) for model in models)
    return pd.DataFrame(list(rows))


def _common_columns(
    model: EvaluatedModel, common: Mapping[str, Collection[str]]
) -> dict[str, float]:
    """Return the columns _common of a trained model: groups compared on the same problems."""
    row: dict[str, float] = {}
    if model.is_base:
        return row
    for metric, problems in common.items():
        grid = model.grids.get(metric)
        shared = grid.restrict(problems) if grid and problems else None
        row |= interval_columns(grid_interval(shared, metric), f"{metric}_common")
        row[f"{metric}_common_problems"] = len(problems)
    return row


def _result_row(model: EvaluatedModel) -> dict[str, object]:
    row: dict[str, object] = {
        "label": model.label,
        "seeds": len(model.runs),
        "step": model.step,
        "problems": max(samples["problem"].nunique() for samples in model.samples),
        "samples": max(model.sample_counts),
    }
    row |= _metric_columns(model, reported_metrics(model.ks))
    if not model.is_base:
        row["gain"] = gain_over_base(model)
        budgets = pd.DataFrame([final_budget(run) for run in model.runs])
        row |= {str(name): mean for name, mean in budgets.mean(skipna=False).items()}
    return row | _metric_columns(model, further_metrics(model.ks, model.temperatures))


def _metric_columns(model: EvaluatedModel, metrics: Sequence[Metric]) -> dict[str, object]:
    row: dict[str, object] = {}
    for metric in metrics:
        grid = model.grids.get(metric.name)
        row |= interval_columns(grid_interval(grid, metric.name), metric.name)
        row[f"{metric.name}_problems"] = float(np.mean(model.problems_defined(metric.name)))
        if grid is not None:
            row[f"{metric.name}_iqm"] = interquartile_mean(grid.measured())
    return row


def gain_over_base(model: EvaluatedModel) -> float:
    """Return pass@1 of the model over that of the same runs at step 0; NaN if that is 0."""
    if any(0 not in run.evaluated_steps for run in model.runs):
        return float("nan")
    before = np.mean([accepted_share(run, 0) for run in model.runs])
    after = np.mean([accepted_share(run, model.step) for run in model.runs])
    return float(after / before) if before > 0 else float("nan")


def profile_table(models: Iterable[EvaluatedModel]) -> pd.DataFrame:
    """Return profile.csv: label, above, share of (seed, problem) pairs with pass@1 above it."""
    thresholds = np.arange(20) / 20
    rows = []
    for model in models:
        grids = stack_seeds(model.seeds, [pass_scores(counts, (1,)) for counts in model.counts])
        if "pass@1" in grids:
            shares = performance_profile(grids["pass@1"].measured(), thresholds)
            rows += [(model.label, *pair) for pair in zip(thresholds, shares, strict=True)]
    return pd.DataFrame(rows, columns=["label", "above", "share"])


def pass_at_k_table(models: Iterable[EvaluatedModel]) -> pd.DataFrame:
    """Return pass_at_k.csv: label, k, mean, low, high for every k up to the samples per problem."""
    rows = []
    for model in models:
        ks = range(1, max(model.sample_counts) + 1)
        grids = stack_seeds(model.seeds, [pass_scores(counts, ks) for counts in model.counts])
        for k in ks:
            ends = grid_interval(grids.get(f"pass@{k}"), f"pass@{k}")
            if not np.isnan(ends.mean):
                rows.append((model.label, k, ends.mean, ends.low, ends.high))
    return pd.DataFrame(rows, columns=["label", "k", "mean", "low", "high"])


def difficulty_table(models: Iterable[EvaluatedModel]) -> pd.DataFrame:
    """Return difficulty.csv: label, difficulty, problems, metric, mean, low, high.

    The metrics are pass@k for the least and the greatest of the models' ks. Difficulties are
    ordered by the mean of the former over all models, easiest first. Empty if the column is missing
    or the same for all.
    """
    rows = []
    for model in models:
        if any("difficulty" not in run.evals for run in model.runs):
            continue
        difficulty_of: dict[str, str] = {}
        for samples in model.samples:
            difficulties = samples["difficulty"].fillna("")
            difficulty_of |= dict(zip(samples["problem"], difficulties, strict=True))
        for difficulty in sorted(set(difficulty_of.values())):
            problems = {name for name, level in difficulty_of.items() if level == difficulty}
            for k in sorted({model.ks[0], model.ks[-1]}):
                grid = model.grids.get(f"pass@{k}")
                ends = grid_interval(grid and grid.restrict(problems), f"pass@{k}")
                key = (model.label, difficulty or "unknown", len(problems), f"pass@{k}")
                rows.append((*key, ends.mean, ends.low, ends.high))
    columns = ["label", "difficulty", "problems", "metric", "mean", "low", "high"]
    table = pd.DataFrame(rows, columns=columns)
    if table["difficulty"].nunique() < 2:
        return table.head(0)
    least_k = table[table["metric"] == table["metric"].iloc[0]]
    order = least_k.groupby("difficulty")["mean"].mean().sort_values(ascending=False).index
    table["difficulty"] = pd.Categorical(table["difficulty"], order, ordered=True)
    return table


def verdict_table(models: Iterable[EvaluatedModel]) -> pd.DataFrame:
    """Return the share of each verdict among all samples: a row per label, ACCEPTED first.

    Seeds are pooled. Only this table shows INFRA_ERROR.
    """
    shares = {
        model.label: pd.concat(model.samples)["verdict"].value_counts(normalize=True)
        for model in models
    }
    table = pd.DataFrame(shares).T.fillna(0.0)
    order = table.mean().drop("ACCEPTED", errors="ignore").sort_values(ascending=False)
    return table.reindex(columns=["ACCEPTED", *order.index], fill_value=0.0).rename_axis("label")


# Runs and their costs.


def run_table(groups: Sequence[Group]) -> pd.DataFrame:
    """Return runs.csv: a row per run with its origin, also for runs outside all averages."""
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
                "pass@1_base": accepted_share(run, 0) if last is not None else None,
                "pass@1": accepted_share(run, last) if last is not None else None,
            }
            row |= final_budget(run)
            for key in ("commit", "data_hash", "judge_version", "started", "ended"):
                row[key] = run.info.get(key)
            rows.append(row | sandbox(run) | {"path": str(run.path)})
    return pd.DataFrame(rows)


def cost_table(groups: Sequence[Group]) -> pd.DataFrame:
    """Return costs.csv: label, seeds, steps, and means over seeds at the last recorded step.

    `…_s` are seconds. For a phase, they are the time that the loop waited for it, so that phases
    add up. `step_s` is the time of a step without evaluations. `peak_mb` is the maximum over
    seeds, `gpu_peak_mb` over all their GPUs. NaN where not recorded.
    """
    rows = []
    for group in groups:
        last_rows = [run.metrics.iloc[-1] for run in group.runs if len(run.metrics)]
        if last_rows:
            rows.append({"label": group.label, **_costs(pd.DataFrame(last_rows))})
    return pd.DataFrame(rows)


def _costs(last_rows: pd.DataFrame) -> dict[str, float]:
    def mean(column: str) -> float:
        return float(last_rows[column].astype(float).mean()) if column in last_rows else np.nan

    def most(column: str) -> float:
        return float(last_rows[column].astype(float).max()) if column in last_rows else np.nan

    costs: dict[str, float] = {"seeds": len(last_rows), "steps": mean("step")}
    # Older runs recorded only the time a phase took, not the time that the loop waited for it.
    prefix = "time/waited_" if "time/waited_judge_s" in last_rows else "time/"
    costs |= {f"{phase}_s": mean(f"{prefix}{phase}_s") for phase in PHASE_TITLES}
    costs |= {"evaluate_s": mean("time/evaluate_s"), "judge_cpu_s": mean("time/judge_cpu_s")}
    costs["trained_s"] = mean("time/total_s") - costs["evaluate_s"]
    costs["step_s"] = costs["trained_s"] / costs["steps"]
    costs["peak_mb"] = most("memory/peak_mb")
    gpu_columns = [str(name) for name in last_rows if str(name).startswith("memory/gpu")]
    costs["gpu_peak_mb"] = max(map(most, gpu_columns), default=np.nan)
    return costs
