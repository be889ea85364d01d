"""Evaluation samples as counts.

pass@k and the metrics of distinct programs depend on an evaluation only through numbers for each
problem: its samples, the judged and the accepted ones, and how many accepted ones share each normal
form. `analysis.load.stand_in_samples` makes samples with given counts, so that
`analysis.metrics.scores` computes from counts what it computes from the samples themselves.
Programs, and metrics of their text or their tokens, are lost (`is_counted`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import pandas as pd

from analysis.metrics.definitions import DISTINCT, DISTINCT_ACCEPTED, without_temperature
from analysis.metrics.normal_form import normal_form

COLUMNS = ("step", "problem", "samples", "judged", "accepted", "forms", "tokens")
Score = TypeVar("Score")


@dataclass
class _Counts:
    """The counts of one problem in one evaluation."""

    samples: int = 0
    judged: int = 0  # without INFRA_ERROR
    accepted: int = 0
    tokens: int = 0  # of judged samples
    forms: Counter[str] = field(default_factory=Counter)  # of accepted programs


def mean_count(mean: float) -> str:
    """Return a mean of counts: whole as it is, else with one decimal."""
    return f"{mean:,.0f}" if mean == round(mean) else f"{mean:,.1f}"


def is_counted(metric: str) -> bool:
    """Return whether a metric, at whatever temperature, follows from the counts."""
    main = without_temperature(metric)
    return main.startswith(("pass@", DISTINCT_ACCEPTED)) or main in (DISTINCT, "distinct_ratio")


def counted(scores: Mapping[str, Score]) -> dict[str, Score]:
    """Return those of a run's scores, by metric, that follow from the counts."""
    return {metric: score for metric, score in scores.items() if is_counted(metric)}


def count_samples(evals: pd.DataFrame) -> pd.DataFrame:
    """Return COLUMNS of evaluation samples: a row for each step and problem.

    `forms`: the sizes of the classes of equal normal forms among accepted programs, in the order of
    their first appearance, as "12 3 1"; programs that cannot be parsed are in none.
    """
    cells: dict[tuple[int, str], _Counts] = {}
    columns = (evals[name] for name in ("step", "problem", "verdict", "program", "tokens"))
    for step, problem, verdict, program, tokens in zip(*columns, strict=True):
        cell = cells.setdefault((step, problem), _Counts())
        cell.samples += 1
        if verdict == "INFRA_ERROR":
            continue
        cell.judged += 1
        cell.tokens += int(tokens)
        if verdict == "ACCEPTED":
            cell.accepted += 1
            if (form := normal_form(program)) is not None:
                cell.forms[form] += 1
    rows = [
        (*key, c.samples, c.judged, c.accepted, " ".join(map(str, c.forms.values())), c.tokens)
        for key, c in cells.items()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))
