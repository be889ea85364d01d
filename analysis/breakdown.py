"""Where models succeed and how they fail: pass@k by difficulty, and shares of verdicts."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from analysis.aggregate import grid_interval
from analysis.stages import Stage


def difficulty_table(stages: Iterable[Stage]) -> pd.DataFrame:
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
                found = grid_interval(whole and whole.on(here), f"pass@{k}")
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


def verdict_table(stages: Iterable[Stage]) -> pd.DataFrame:
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
