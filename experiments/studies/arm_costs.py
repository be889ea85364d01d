"""Tables of the costs of each arm of a study, and of its scores at equal cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analysis.report.markdown import table
from experiments.studies.figures import count, interval

if TYPE_CHECKING:
    import pandas as pd

COSTS = {  # column of the report's table.csv or costs.csv → heading
    "generated_tokens": "generated tokens",
    "reference_tokens": "reference tokens",
    "judged_programs": "judged programs",
    "generate_s": "generation, s",
    "judge_s": "judging, s",
    "reference_s": "reference, s",
    "train_s": "training, s",
    "trained_s": "total, s",
    "judge_cpu_s": "CPU of programs, s",
    "peak_mb": "peak memory, MB",
}
AXES = {  # of equal_budget.csv
    "generated_tokens": "tokens, including the reference's",
    "judged_programs": "judged programs",
    "flops": "FLOPs",
}
METRICS = ("pass@1", "pass@10")


def cost_sections(
    labels: Mapping[str, str | None], costs: pd.DataFrame, equal_budget: pd.DataFrame
) -> list[str]:
    """Sections of a page: a table of costs, and scores at each budget that the arms share.

    `labels`: arm → its label in the report. `costs`: by label, with the columns of COSTS.
    """
    spent: dict[Any, dict[Any, Any]] = costs.to_dict("index")
    reported = {arm: label for arm, label in labels.items() if label in spent}
    rows = [
        [arm, *(count(spent[label].get(key)) for key in COSTS)] for arm, label in reported.items()
    ]
    sections = [
        "### What it cost\n\nMeans over seeds; maximum over seeds for memory. Seconds exclude "
        "evaluations and depend on the machine's other load.\n\n"
        + table(["arm", *COSTS.values()], rows),
        "### At equal budget\n\nInterpolated linearly between evaluations (`eval.every` steps "
        "apart), starting from the base model.",
    ]
    for axis in AXES:
        scores = equal_budget[equal_budget["axis"] == axis]
        if len(scores):
            sections.append(_equal_budget_table(axis, reported, scores))
    return sections


def _equal_budget_table(axis: str, labels: Mapping[str, str | None], scores: pd.DataFrame) -> str:
    """Scores at the budget of one axis. An arm that spends nothing there has no row."""
    cells: dict[tuple[Any, Any], dict[Any, Any]] = {
        (row["label"], row["metric"]): row for row in scores.to_dict("records")
    }
    rows = []
    for arm, label in labels.items():
        if label in set(scores["label"]):
            scored = (cells.get((label, metric)) for metric in METRICS)
            rows.append([arm, *(cell for row in scored for cell in _score_cells(row))])
    head = ["arm", *(heading for metric in METRICS for heading in (metric, "tier"))]
    budget = scores["budget"].iloc[0]
    spent = f"{budget:.3g}" if axis == "flops" else count(budget)
    return f"At {spent} {AXES[axis]}:\n\n" + table(head, rows)


def _score_cells(row: Mapping[str, Any] | None) -> list[str]:
    if row is None:
        return ["–", "–"]
    return [interval(row, "mean", "low", "high"), count(row["tier"])]
