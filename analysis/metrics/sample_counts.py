"""Evaluation samples as counts, and samples that stand for counts.

pass@k and the metrics of distinct programs depend on an evaluation only through numbers for each
problem: its samples, the judged and the accepted ones, and how many accepted ones share each normal
form. `stand_in_samples` makes samples with given counts, so that `analysis.metrics.scores` computes
from counts what it computes from the samples themselves. Programs, and metrics of their text or
their tokens, are lost (`is_counted`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pandas as pd

from analysis.metrics.definitions import DISTINCT, DISTINCT_ACCEPTED, without_temperature
from analysis.metrics.normal_form import normal_form

COLUMNS = ("step", "problem", "samples", "judged", "accepted", "forms", "tokens")
UNPARSABLE = "("  # stands for an accepted program that has no normal form


@dataclass
class _Counts:
    """The counts of one problem in one evaluation."""

    samples: int = 0
    judged: int = 0  # without INFRA_ERROR
    accepted: int = 0
    tokens: int = 0  # of judged samples
    forms: Counter[str] = field(default_factory=Counter)  # of accepted programs


def is_counted(metric: str) -> bool:
    """Return whether a metric, at whatever temperature, follows from the counts."""
    main = without_temperature(metric)
    return main.startswith(("pass@", DISTINCT_ACCEPTED)) or main in (DISTINCT, "distinct_ratio")


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


def stand_in_samples(counts: pd.DataFrame) -> pd.DataFrame:
    """Return samples that have the counts, with columns step, problem, sample, verdict, program.

    The programs of class i are the constant i: constants have different normal forms, and a single
    token has no pair of tokens for distinct-2. Raises ValueError for counts that no samples have.
    """
    columns = (counts[name] for name in ("samples", "judged", "accepted", "forms"))
    cells = [_cell(*numbers) for numbers in zip(*columns, strict=True)]
    samples = counts["samples"].to_numpy()
    first = np.repeat(samples.cumsum() - samples, samples)  # of each sample's cell
    return pd.DataFrame(
        {
            "step": np.repeat(counts["step"].to_numpy(), samples),
            "problem": np.repeat(counts["problem"].to_numpy(object), samples),
            "sample": np.arange(samples.sum()) - first,
            "verdict": np.array([verdict for cell in cells for verdict, _ in cell], object),
            "program": np.array([program for cell in cells for _, program in cell], object),
        }
    )


@lru_cache(maxsize=1 << 14)
def _cell(samples: int, judged: int, accepted: int, forms: str) -> list[tuple[str, str]]:
    """Return (verdict, program) of each sample of a problem; the cells of a study repeat."""
    return list(_samples(samples, judged, accepted, [int(size) for size in forms.split()]))


def _samples(
    samples: int, judged: int, accepted: int, sizes: list[int]
) -> Iterator[tuple[str, str]]:
    if not 0 <= sum(sizes) <= accepted <= judged <= samples or min(sizes, default=1) < 1:
        raise ValueError(f"{samples} samples, {judged} judged, {accepted} accepted, forms {sizes}")
    for number, size in enumerate(sizes):
        yield from [("ACCEPTED", str(number))] * size
    yield from [("ACCEPTED", UNPARSABLE)] * (accepted - sum(sizes))
    yield from [("WRONG_ANSWER", "")] * (judged - accepted)
    yield from [("INFRA_ERROR", "")] * (samples - judged)
