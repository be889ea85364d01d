"""Sections of a study's page: results and differences at each further temperature."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from analysis.metrics.definitions import FURTHER, at_temperature
from analysis.report.markdown import table
from experiments.errors import UserError
from experiments.studies.figures import signed

if TYPE_CHECKING:
    import pandas as pd

    from experiments.studies.results.results import Results
    from experiments.studies.study import Study

Rows = tuple[list[str], list[list[str]]]  # heading and rows


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
