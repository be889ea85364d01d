"""What a study's arms cost, and what they reached at equal cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from analysis.report.markdown import table
from experiments.studies.figures import count, interval

if TYPE_CHECKING:
    import pandas as pd

COSTS = {  # columns of the report's table.csv and costs.csv, as a page calls them
    "generated_tokens": "generated tokens",
    "reference_tokens": "reference tokens",
    "judged_programs": "judged programs",
    "generate_s": "writing, s",
    "judge_s": "judging, s",
    "reference_s": "reference, s",
    "train_s": "training, s",
    "trained_s": "all, s",
    "judge_cpu_s": "CPU of programs, s",
    "peak_mb": "peak memory, MB",
}
AXES = {  # of equal_budget.csv
    "generated_tokens": "tokens, the reference's included",
    "judged_programs": "judged programs",
}
METRICS = ("pass@1", "pass@10")


def spending(
    label: Mapping[str, str | None], costs: pd.DataFrame, equal: pd.DataFrame
) -> list[str]:
    """Parts of a page: a table of costs, and one of each budget that the arms have in common.

    `label`: arm → its label in the report; `costs`: by label, all that COSTS names.
    """
    known = {arm: told for arm, told in label.items() if told in costs.index}
    rows = [
        [arm, *(count(costs.loc[told].get(key)) for key in COSTS)] for arm, told in known.items()
    ]
    parts = [
        "### What it cost\n\nMeans over seeds, of memory the most of any seed. Seconds leave "
        "evaluations out, and hang on what else the machine did.\n\n"
        + table(["arm", *COSTS.values()], rows)
    ]
    parts.append(
        "### At equal budget\n\nBy interpolation between evaluations, which `eval.every` says how "
        "many steps lie apart: of a budget before the first of them, a straight line from the base."
    )
    parts += [_at(x, known, equal[equal["axis"] == x]) for x in AXES if (equal["axis"] == x).any()]
    return parts


def _at(x: str, known: Mapping[str, str], equal: pd.DataFrame) -> str:
    """The table at equal budget of one axis; an arm that spends nothing there has no row."""
    rows, head = [], [part for metric in METRICS for part in (metric, "tier")]
    for arm, told in known.items():
        found = equal[equal["label"] == told].set_index("metric")
        if len(found):
            rows.append([arm, *_cells(found)])
    budget = count(equal["budget"].iloc[0])
    return f"At {budget} {AXES[x]}:\n\n" + table(["arm", *head], rows)


def _cells(found: pd.DataFrame) -> Sequence[str]:
    cells = []
    for metric in METRICS:
        if metric in found.index:
            row = found.loc[metric]
            cells += [interval(row, "mean", "low", "high"), count(row["tier"])]
        else:
            cells += ["–", "–"]
    return cells
