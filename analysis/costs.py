"""What a group's runs took of the machine: wall time by phase, the judge's CPU, memory."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.groups import Group

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
