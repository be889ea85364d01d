"""Tables of models and groups: results, runs, pass@k, difficulties, verdicts, costs and power.

Every table is a tidy DataFrame. Means are over seeds, intervals are 95 %
(`analysis.intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import comparisons, intervals
from analysis.budgets import (
    COLUMNS,
    OFFLINE_TITLES,
    PHASE_TITLES,
    equal_budget_tables,
    evaluation_curve,
    final_budget,
    threshold_table,
    training_curve,
)
from analysis.comparisons import PairedDifference
from analysis.experiment import Experiment
from analysis.groups import EvaluatedModel, Group, as_text, common_problems, settings_table
from analysis.intervals import TARGET_DIFFERENCE, Estimate
from analysis.metrics import (
    DISTINCT,
    PARTIAL,
    Metric,
    accepted_share,
    pass_scores,
    reported_metrics,
    scores_at_step,
    stack_seeds,
    without_temperature,
)
from analysis.pass_at_k import curve_ks
from analysis.ranks import rank_table
from analysis.runs import Run, memoize
from analysis.turns import turn_tables

# Results of models.


def result_table(models: Sequence[EvaluatedModel]) -> pd.DataFrame:
    """Return table.csv, a row per model: label, seeds, step, problems, samples, and the metrics.

    Each metric has its interval in _low and _high. _problems is the number of problems on which it
    is defined, mean over seeds. _common, of metrics that few problems may have, is the mean over
    the problems that all trained models have, and _common_problems is their number. Trained models
    also have `gain_over_base` as `gain`, and the budget spent, mean over seeds. Metrics at further
    temperatures follow, as pass@10 (T=1).
    """
    common = {metric: common_problems(models, metric) for metric in PARTIAL}
    rows = []
    for model in models:
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
            spent = pd.DataFrame([final_budget(run) for run in model.runs])
            row |= {str(name): mean for name, mean in spent.mean(skipna=False).items()}
        for temperature in model.temperatures:
            row |= _metric_columns(model, reported_metrics(model.ks, temperature))
        for metric, problems in () if model.is_base else common.items():
            grid = model.grids.get(metric)
            shared = grid.restrict(problems) if grid and problems else None
            row |= intervals.interval_columns(shared, metric, f"{metric}_common")
            row[f"{metric}_common_problems"] = len(problems)
        rows.append(row)
    return pd.DataFrame(rows)


def _metric_columns(model: EvaluatedModel, reported: Sequence[Metric]) -> dict[str, object]:
    row: dict[str, object] = {}
    for metric in reported:
        grid = model.grids.get(metric.name)
        row |= intervals.interval_columns(grid, metric.name)
        row[f"{metric.name}_problems"] = float(np.mean(model.problems_defined(metric.name)))
    return row


def gain_over_base(model: EvaluatedModel) -> float:
    """Return pass@1 of the model over that of the same runs at step 0; NaN if that is 0."""
    if any(0 not in run.evaluated_steps for run in model.runs):
        return float("nan")
    before = np.mean([accepted_share(run, 0) for run in model.runs])
    after = np.mean([accepted_share(run, model.step) for run in model.runs])
    return float(after / before) if before > 0 else float("nan")


def pass_at_k_table(models: Iterable[EvaluatedModel]) -> pd.DataFrame:
    """Return pass_at_k.csv: label, k, mean, low, high, for k up to the samples per problem."""
    rows = []
    for model in models:
        ks = curve_ks(max(model.sample_counts))
        grids = stack_seeds(model.seeds, [pass_scores(counts, ks) for counts in model.counts])
        for k in ks:
            ends = intervals.grid_interval(grids.get(f"pass@{k}"), f"pass@{k}")
            if not np.isnan(ends.mean):
                rows.append((model.label, k, *ends))
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
        for difficulty in sorted(set(model.difficulties.values())):
            problems = {name for name, level in model.difficulties.items() if level == difficulty}
            for k in sorted({model.ks[0], model.ks[-1]}):
                grid = model.grids.get(f"pass@{k}")
                ends = intervals.grid_interval(grid and grid.restrict(problems), f"pass@{k}")
                key = (model.label, difficulty or "unknown", len(problems), f"pass@{k}")
                rows.append((*key, *ends))
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


def sandbox(run: Run) -> dict[str, str | None]:
    """Return the run's sandbox as columns: its name, and how strongly it isolates programs."""
    recorded = run.info.get("sandbox")
    if not isinstance(recorded, dict):
        return {"sandbox": recorded, "sandbox_strength": None}
    rest = {key: value for key, value in recorded.items() if key not in ("name", "strength")}
    strength = [str(recorded.get("strength") or ""), as_text(rest) if rest else ""]
    return {"sandbox": recorded.get("name"), "sandbox_strength": "; ".join(filter(None, strength))}


def cost_table(groups: Sequence[Group]) -> pd.DataFrame:
    """Return costs.csv: label, seeds, steps, and means over seeds at the last recorded step.

    `…_s` are seconds. For a phase, they are the time that the loop waited for it, so that phases
    add up. `step_s` is the time of a step without evaluations. `offline_accepted` and
    `offline_rejected` are the data set's programs that were learned from, once for each epoch.
    `peak_mb` is the maximum over seeds, `gpu_peak_mb` over all their GPUs. NaN where not recorded.
    """
    last_rows = {
        group.label: pd.DataFrame([run.metrics.iloc[-1] for run in group.runs if len(run.metrics)])
        for group in groups
    }
    return pd.DataFrame(
        {"label": label} | _costs(rows) for label, rows in last_rows.items() if len(rows)
    )


def _costs(last_rows: pd.DataFrame) -> dict[str, float]:
    """Return the columns after `label`, of the last rows of a group's runs."""

    def values(column: str) -> pd.Series:
        return last_rows.get(column, pd.Series(dtype=float)).astype(float)

    costs: dict[str, float] = {"seeds": len(last_rows), "steps": values("step").mean()}
    costs |= {f"{phase}_s": values(f"time/waited_{phase}_s").mean() for phase in PHASE_TITLES}
    costs |= {name: values(f"time/{name}").mean() for name in ("evaluate_s", "judge_cpu_s")}
    costs["trained_s"] = values("time/total_s").mean() - costs["evaluate_s"]
    costs["step_s"] = costs["trained_s"] / costs["steps"]
    for name in OFFLINE_TITLES:
        costs[name] = values(f"budget/{name}").mean()
    costs["peak_mb"] = values("memory/peak_mb").max()
    gpus = [str(name) for name in last_rows if str(name).startswith("memory/gpu")]
    costs["gpu_peak_mb"] = max((values(name).max() for name in gpus), default=np.nan)
    return costs


# Checks of a run's training: numbers, flagged beyond a bound.

WINDOW = 10  # steps averaged


class Check(NamedTuple):
    """One number of a run, flagged above `bound`, or below it if `flag_below`."""

    name: str
    title: str
    meaning: str
    bound: float
    flag_below: bool = False

    def flagged(self, value: float) -> bool:
        return value < self.bound if self.flag_below else value > self.bound


CHECKS = tuple(Check(**one) for one in COLUMNS["checks"])


def health(groups: Sequence[Group], ks: Sequence[int]) -> pd.DataFrame:
    """Return health.csv: a row per run with group, seed and CHECKS, NaN where not recorded."""
    rows = [
        {"run": run.name, "group": group.label, "seed": run.seed, **run_checks(run, tuple(ks))}
        for group in groups
        for run in group.runs
    ]
    return pd.DataFrame(rows)


def run_checks(run: Run, ks: tuple[int, ...]) -> dict[str, float]:
    """Return the values of CHECKS for one run."""

    def recorded(column: str) -> pd.Series:
        return run.metrics.get(column, pd.Series(dtype=float)).astype(float).dropna()

    values = dict.fromkeys((check.name for check in CHECKS), math.nan)
    columns = [column for column in ("loss", "grad_norm") if column in run.metrics]
    if columns and len(run.metrics):
        values["nan_steps"] = float(run.metrics[columns].astype(float).isna().any(axis=1).sum())
    reward, entropy = recorded("reward_mean"), recorded("entropy")
    smooth = reward.rolling(WINDOW).mean().dropna()
    if len(reward) >= 2 * WINDOW and smooth.max() > 0:
        values["reward_kept"] = float(smooth.iloc[-1] / smooth.max())
    if len(entropy) >= 2 * WINDOW and entropy.iloc[:WINDOW].mean() > 0:
        values["entropy_kept"] = float(entropy.tail(WINDOW).mean() / entropy.iloc[:WINDOW].mean())
    values["infra_errors"] = float((run.evals["verdict"] == "INFRA_ERROR").sum())
    judge_failures = recorded("budget/infra_errors")
    values["infra_errors"] += float(judge_failures.iloc[-1]) if len(judge_failures) else 0.0
    if not run.evaluated_steps:
        return values
    last = run.evaluation(run.evaluated_steps[-1])
    if run.evaluated_steps[-1] > 0:
        at_end = scores_at_step(run, run.evaluated_steps[-1], ks).get(DISTINCT)
        values[DISTINCT] = float(at_end.values.mean()) if at_end else math.nan
    if "truncated" in last:
        values["truncated"] = float(last["truncated"].astype(float).mean())
    ratio = recorded("mismatch/mean") / recorded("mismatch/bound")
    values["mismatch"] = float(ratio.max()) if len(ratio) else math.nan
    return values


# Power.


def power_table(
    models: Sequence[EvaluatedModel], differences: Sequence[PairedDifference]
) -> pd.DataFrame:
    """Return power.csv: a row for each pair and metric with an interval.

    - `separated`: by p-values corrected for all pairs of the metric (Holm)
    - `smallest_difference`: distinguished from 0 in 80 of 100 such comparisons
    - `of_seeds` … `of_sampling`: shares of the difference's variance, NaN where unknown
    - `seeds_needed` …: to detect a difference of `wish`, all else unchanged; infinite if impossible
    """
    by_label = {model.label: model for model in models}
    pairs = [difference for difference in differences if difference.seeds > 1]
    if not pairs:
        return pd.DataFrame()
    models_of = [(by_label[pair.a], by_label[pair.b]) for pair in pairs]
    estimates = Estimate.stack([pair.estimate for pair in pairs])
    drawn = [_sampling(pair.metric, a, b) for pair, (a, b) in zip(pairs, models_of, strict=True)]
    noises = intervals.noise_parts(estimates, np.array(drawn))
    samples = np.array([min(*a.sample_counts, *b.sample_counts) for a, b in models_of])
    needed = intervals.resources_needed(estimates, noises, samples, TARGET_DIFFERENCE)
    names = ["a", "b", "metric", "separated"]
    table = pd.DataFrame([[getattr(pair, name) for name in names] for pair in pairs], columns=names)
    return table.assign(
        smallest_difference=intervals.smallest_difference(estimates),
        **{f"of_{source}": share for source, share in noises.shares().items()},
        wish=TARGET_DIFFERENCE,
        **{f"{what}_needed": number for what, number in needed.items()},
    )


def _sampling(metric: str, a: EvaluatedModel, b: EvaluatedModel) -> float:
    """Return the variance of a - b from samples, on the seeds of both; known for pass@k only."""
    if not metric.startswith("pass@"):
        return math.nan
    variance = 0.0
    for mine, other in ((a, b), (b, a)):
        by_seed = zip(_sampling_by_seed(mine, metric), mine.seeds, strict=True)
        shared = [variance for variance, seed in by_seed if seed in other.seeds]
        variance += float(np.mean(shared) / len(shared))
    return variance


@memoize
def _sampling_by_seed(model: EvaluatedModel, metric: str) -> list[float]:
    """Return the sampling variance of each seed's mean over problems; NaN where unknown."""
    k = int(without_temperature(metric).removeprefix("pass@"))
    variances = []
    for counts in model.counts_of(metric):
        variance = intervals.sampling_variance(counts["c"].to_numpy(), counts["n"].to_numpy(), k)
        known = variance[~np.isnan(variance)]
        variances.append(known.mean() / known.size if known.size else np.nan)
    return variances


# All tables of an experiment.


def experiment_tables(experiment: Experiment) -> dict[str, pd.DataFrame]:
    """Return file name → table; without an evaluation, only the tables of runs have rows.

    verdicts.csv of a packed study has no rows: its counts tell accepted samples from others only.
    """
    groups, models, ks = experiment.groups, experiment.models, experiment.ks
    run_tables = {
        "runs.csv": run_table(groups),
        "settings.csv": settings_table(groups),
        "costs.csv": cost_table(groups),
        "health.csv": health(groups, ks),
        "training.csv": training_curve(groups, experiment.window),
    }
    trained, pairs = experiment.trained, experiment.pairs
    at_equal_budget, equal_budget_differences = equal_budget_tables(groups, ks)
    verdicts = pd.DataFrame(columns=["label"])
    if not experiment.packed:
        verdicts = verdict_table(models).reset_index()
    by_file = {
        "table.csv": result_table(models),
        "differences.csv": comparisons.difference_table(pairs),
        "contrasts.csv": comparisons.contrast_table(experiment.contrasts),
        "control.csv": comparisons.control_table(experiment.against_control),
        "tiers.csv": comparisons.tier_table(trained, pairs),
        "letters.csv": comparisons.letter_table(trained, pairs),
        "ranks.csv": rank_table(trained, pairs),
        "power.csv": power_table(trained, pairs),
        "equal_budget.csv": at_equal_budget,
        "equal_budget_differences.csv": equal_budget_differences,
        "thresholds.csv": threshold_table(groups) if trained else pd.DataFrame(),
        "curve.csv": evaluation_curve(groups, ks),
        "pass_at_k.csv": pass_at_k_table(models),
        "crossing.csv": experiment.crossings,
        "difficulty.csv": difficulty_table(models),
        "verdicts.csv": verdicts,
    }
    evaluated = by_file | turn_tables(models, groups, ks)
    return run_tables | {
        name: table if models else pd.DataFrame() for name, table in evaluated.items()
    }
