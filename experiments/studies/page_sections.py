"""Sections of a study's page: costs, scores at equal cost, and results at further temperatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.metrics.definitions import FURTHER, at_temperature
from analysis.report.markdown import table
from experiments.errors import UserError
from experiments.studies.figures import count, interval, signed

if TYPE_CHECKING:
    import pandas as pd

    from experiments.studies.results.results import Results
    from experiments.studies.study import Study

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
Rows = tuple[list[str], list[list[str]]]  # heading and rows


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


def temperatures_in(columns: pd.Index) -> list[float]:
    """Return the further temperatures in the columns of the report's table.csv, ascending."""
    ends = {column.partition(FURTHER)[2] for column in columns if FURTHER in column}
    return sorted({float(end.partition(")")[0]) for end in ends})


def temperature_sections(
    study: Study,
    results: Results,
    metrics: Sequence[str],
    result_rows: Callable[[Sequence[str]], Rows],
) -> Iterator[str]:
    """Yield a section for each further temperature.

    `metrics`: the main ones of the page. `result_rows`: the table of results in given metrics.
    """
    for temperature in temperatures_in(results.table.columns):
        there = [at_temperature(metric, temperature) for metric in metrics]
        text = (
            f"### At temperature {temperature:g}\n\n"
            "The same models, problems and numbers of samples, sampled at temperature "
            f"{temperature:g}. Intervals and letters as above; the pairs named ahead are tested at "
            "`eval.temperature` alone.\n\n" + table(*result_rows(there))
        )
        if rows := list(_difference_rows(study, results, there)):
            text += "\n\n" + table(["difference", *there], rows)
        yield text


def _difference_rows(study: Study, results: Results, metrics: Sequence[str]) -> Iterator[list[str]]:
    """Yield the pairs of arms in the study's gains and claims, each once."""
    pairs = [*map(tuple, study.gains), *((claim.a, claim.b) for claim in study.claims)]
    for a, b in dict.fromkeys(pairs):
        differences = [results.difference(a, b, metric) for metric in metrics]
        if any(difference is not None for difference in differences):
            yield [f"{a} − {b}", *map(signed, differences)]


def check_claims(study: Study, results: Results) -> None:
    """Raise UserError if a claim is on a further temperature that no run was evaluated at."""
    known = temperatures_in(results.table.columns)
    for claim in study.claims:
        end = claim.metric.partition(FURTHER)[2]
        if end and not any(end == f"{temperature:g})" for temperature in known):
            listed = ", ".join(f"{temperature:g}" for temperature in known) or "none"
            raise UserError(
                f"claims: {claim.says!r} is on {claim.metric}, but the further temperatures of the "
                f"runs are: {listed}; set eval.further_temperatures, or write T as there"
            )
