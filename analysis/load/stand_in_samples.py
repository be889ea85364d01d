"""Samples that stand for the counts of a packed study.

pass@k and the metrics of distinct programs depend on an evaluation only through counts for each
problem (`analysis.metrics.sample_counts`), so stand-ins have the scores of the counted samples.
What does not follow from counts, such as a program's text, must not be read from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

UNPARSABLE = "("  # stands for an accepted program that has no normal form


def stand_in_samples(counts: pd.DataFrame) -> pd.DataFrame:
    """Return samples that have the counts, with columns step, problem, sample, verdict, program.

    The programs of class i are the constant i: constants have different normal forms, and a single
    token has no pair of tokens for distinct-2. Raises ValueError for counts that no samples have.
    """
    import numpy as np
    import pandas as pd

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
