"""From stages and groups to tables: the results, the runs, pass@k against k.

Every table is a tidy DataFrame; means are over seeds, intervals are 95 % (`analysis.stats.intervals`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from analysis.load.groups import Group
from analysis.load.run_folders import Run
from analysis.load.settings import sandbox
from analysis.metrics.definitions import metric_bounds, reported_metrics
from analysis.metrics.evaluated_models import EvaluatedModel
from analysis.metrics.scores import ScoreGrid, accepted_share, pass_scores, stack_seeds
from analysis.stats.intervals import Interval, interquartile_mean, interval, performance_profile

COUNTED = {  # of a run's budget, and what people call it
    "generated_tokens": "generated tokens",
    "reference_tokens": "reference tokens",
    "judged_programs": "judged programs",
    "judged_tests": "judged tests",
    "optimiser_steps": "optimiser steps",
}
BUDGET = {name: f"budget/{name}" for name in COUNTED} | {"wall_s": "time/total_s"}
AREA = "pass@1, mean so far"  # the area under its curve over the budget spent, over the budget


def grid_interval(found: ScoreGrid | None, metric: str) -> Interval:
    """Mean and interval of a metric's scores; NaN where there are none."""
    if found is None:
        return Interval(float("nan"), float("nan"), float("nan"))
    return interval(found.values, found.weights, bounds=metric_bounds(metric))


def named(found: Interval, name: str) -> dict[str, float]:
    """The interval as columns name, name_low and name_high."""
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def budget(run: Run) -> dict[str, float]:
    """What the run had spent by its last recorded step; NaN where it was not recorded.

    Evaluations are not charged, nor is their time.
    """
    last = run.metrics.iloc[-1] if len(run.metrics) else {}
    spent = {name: float(last.get(column, float("nan"))) for name, column in BUDGET.items()}
    return spent | {"wall_s": spent["wall_s"] - float(last.get("time/evaluate_s", 0.0))}


def result_table(all_stages: Iterable[EvaluatedModel]) -> pd.DataFrame:
    """One row per stage: label, seeds, step, problems, samples per problem, and the metrics.

    Each metric has its interval in _low and _high, and in _problems the number of problems on which
    it is defined, mean over seeds, and in _iqm the interquartile mean over seeds and problems (as
    rliable's). At the end of training also `gain` (pass@1 over that of the same
    runs at step 0) and the budget spent, mean over seeds.
    """
    return pd.DataFrame([_result_row(stage) for stage in all_stages])


def _result_row(stage: EvaluatedModel) -> dict[str, object]:
    row: dict[str, object] = {
        "label": stage.label,
        "seeds": len(stage.runs),
        "step": stage.step,
        "problems": max(samples["problem"].nunique() for samples in stage.samples),
        "samples": max(stage.sample_counts),
    }
    for metric in reported_metrics(stage.ks):
        row |= named(grid_interval(stage.grids.get(metric.name), metric.name), metric.name)
        row[f"{metric.name}_problems"] = float(np.mean(stage.problems_defined(metric.name)))
        if metric.name in stage.grids:
            row[f"{metric.name}_iqm"] = interquartile_mean(stage.grids[metric.name].measured())
    if stage.step > 0:
        row["gain"] = gain(stage)
        spent = pd.DataFrame([budget(run) for run in stage.runs])
        row |= spent.mean(skipna=False).to_dict()
    return row


def profile_table(all_stages: Iterable[EvaluatedModel]) -> pd.DataFrame:
    """profile.csv: label, above, share: the share of seeds' problems with a pass@1 above that."""
    above = np.arange(20) / 20
    rows = []
    for stage in all_stages:
        scores = stack_seeds(stage.seeds, [pass_scores(found, (1,)) for found in stage.counts])
        if "pass@1" in scores:
            shares = performance_profile(scores["pass@1"].measured(), above)
            rows += [(stage.label, *pair) for pair in zip(above, shares, strict=True)]
    return pd.DataFrame(rows, columns=["label", "above", "share"])


def gain(stage: EvaluatedModel) -> float:
    """pass@1 of the stage over pass@1 of the same runs at step 0; NaN without one above 0."""
    if any(0 not in run.evaluated_steps for run in stage.runs):
        return float("nan")
    before = np.mean([accepted_share(run, 0) for run in stage.runs])
    after = np.mean([accepted_share(run, stage.step) for run in stage.runs])
    return float(after / before) if before > 0 else float("nan")


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
                "pass@1_base": accepted_share(run, 0) if last is not None else None,
                "pass@1": accepted_share(run, last) if last is not None else None,
            }
            row |= budget(run)
            for key in ("commit", "data_hash", "judge_version", "started", "ended"):
                row[key] = run.info.get(key)
            rows.append(row | sandbox(run) | {"path": str(run.path)})
    return pd.DataFrame(rows)


def pass_at_k_table(all_stages: Iterable[EvaluatedModel]) -> pd.DataFrame:
    """Columns label, k, mean, low, high for every k up to the samples that a problem has."""
    rows = []
    for stage in all_stages:
        at = range(1, max(stage.sample_counts) + 1)
        by_metric = stack_seeds(stage.seeds, [pass_scores(found, at) for found in stage.counts])
        for k in at:
            found = grid_interval(by_metric.get(f"pass@{k}"), f"pass@{k}")
            if not np.isnan(found.mean):
                rows.append((stage.label, k, found.mean, found.low, found.high))
    return pd.DataFrame(rows, columns=["label", "k", "mean", "low", "high"])


# Where models succeed and how they fail: pass@k by difficulty, and shares of verdicts.


def difficulty_table(stages: Iterable[EvaluatedModel]) -> pd.DataFrame:
    """pass@k by the column `difficulty`: label, difficulty, problems, metric, mean, low, high.

    Of the stages' ks, the least and the greatest. Difficulties stand in the order of the former
    over all stages, the easiest first. Empty where the column is missing or the same for all.
    """
    rows = []
    for stage in stages:
        if any("difficulty" not in run.evals for run in stage.runs):
            continue
        tier: dict[str, str] = {}
        for samples in stage.samples:
            tier |= dict(zip(samples["problem"], samples["difficulty"].fillna(""), strict=True))
        for difficulty in sorted(set(tier.values())):
            here = {problem for problem, name in tier.items() if name == difficulty}
            for k in sorted({stage.ks[0], stage.ks[-1]}):
                whole = stage.grids.get(f"pass@{k}")
                found = grid_interval(whole and whole.restrict(here), f"pass@{k}")
                ends = (found.mean, found.low, found.high)
                rows.append((stage.label, difficulty or "unknown", len(here), f"pass@{k}", *ends))
    columns = ["label", "difficulty", "problems", "metric", "mean", "low", "high"]
    table = pd.DataFrame(rows, columns=columns)
    if table["difficulty"].nunique() < 2:
        return table.head(0)
    first = table[table["metric"] == table["metric"].iloc[0]]
    order = first.groupby("difficulty")["mean"].mean().sort_values(ascending=False).index
    table["difficulty"] = pd.Categorical(table["difficulty"], order, ordered=True)
    return table


def verdict_table(stages: Iterable[EvaluatedModel]) -> pd.DataFrame:
    """Share of each verdict among all samples, seeds pooled: a row per label, ACCEPTED first.

    INFRA_ERROR is shown here, and nowhere else.
    """
    shares = {
        stage.label: pd.concat(stage.samples)["verdict"].value_counts(normalize=True)
        for stage in stages
    }
    table = pd.DataFrame(shares).T.fillna(0.0)
    order = table.mean().drop("ACCEPTED", errors="ignore").sort_values(ascending=False)
    return table.reindex(columns=["ACCEPTED", *order.index], fill_value=0.0).rename_axis("label")


# What a group's runs took of the machine: wall time by phase, the judge's CPU, memory.


PHASES = {
    "generate": "writing",
    "judge": "judging",
    "reference": "base model",
    "train": "learning",
    "sync": "weights and checks",
}


def cost_table(groups: Sequence[Group]) -> pd.DataFrame:
    """costs.csv: label, seeds, steps, and of the last recorded step the mean over seeds.

    `…_s` are seconds, of a phase those that the loop stood still for, so that phases add up;
    `step_s` is of a step without evaluations; `peak_mb` is the most of any seed,
    `gpu_peak_mb` of any of its GPUs. NaN where not recorded.
    """
    rows = []
    for group in groups:
        last = [run.metrics.iloc[-1] for run in group.runs if len(run.metrics)]
        if not last:
            continue
        table = pd.DataFrame(last)

        def mean(column: str, table: pd.DataFrame = table) -> float:
            return float(table[column].astype(float).mean()) if column in table else float("nan")

        row = {"label": group.label, "seeds": len(last), "steps": mean("step")}
        waited = "time/waited_" if "time/waited_judge_s" in table else "time/"  # older runs
        row |= {f"{phase}_s": mean(f"{waited}{phase}_s") for phase in PHASES}
        row["evaluate_s"], row["judge_cpu_s"] = mean("time/evaluate_s"), mean("time/judge_cpu_s")
        row["trained_s"] = mean("time/total_s") - row["evaluate_s"]
        row["step_s"] = row["trained_s"] / row["steps"]
        row["peak_mb"] = _most(table, "memory/peak_mb")
        gpus = [column for column in table if column.startswith("memory/gpu")]
        row["gpu_peak_mb"] = max((_most(table, column) for column in gpus), default=float("nan"))
        rows.append(row)
    return pd.DataFrame(rows)


def _most(table: pd.DataFrame, column: str) -> float:
    return float(table[column].astype(float).max()) if column in table else float("nan")
