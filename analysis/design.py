"""What the comparison could have seen, and where its noise comes from, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd

from analysis.differences import Pair
from analysis.power import Noise, needed, noise, sampling_variance, smallest_difference
from analysis.stages import Stage

WISH = 0.05  # the difference for which the report says what would be needed


def design_table(groups: Sequence[Stage], found: Sequence[Pair], wish: float) -> pd.DataFrame:
    """power.csv: a row for each pair and metric with an interval.

    `smallest_difference`: what would have been told from 0 in 80 of 100 such comparisons;
    `of_seeds` … `of_sampling`: shares of the difference's variance, NaN where not known;
    `seeds_needed` … to see a difference of `wish`, the rest as it is, infinite where none will do.
    """
    by_label = {group.label: group for group in groups}
    rows = []
    for one in found:
        if one.seeds < 2:
            continue
        a, b = by_label[one.a], by_label[one.b]
        parts = noise_of(one, a, b)
        samples = min(*a.sizes, *b.sizes)
        row: dict[str, object] = {"a": one.a, "b": one.b, "metric": one.metric}
        row["smallest_difference"] = float(smallest_difference(one.spread))
        row |= {f"of_{name}": share for name, share in parts.shares().items()}
        row["wish"] = wish
        more = needed(one.spread, parts, samples, wish)
        row |= {f"{name}_needed": number for name, number in more.items()}
        rows.append(row)
    return pd.DataFrame(rows)


def noise_of(one: Pair, a: Stage, b: Stage) -> Noise:
    """The parts of a pair's noise; that of the samples for pass@k only."""
    sampling = float("nan")
    if one.metric.startswith("pass@"):
        k = int(one.metric.removeprefix("pass@"))
        sampling = sum(_sampling(mine, other, k) for mine, other in ((a, b), (b, a)))
    return noise(one.spread, sampling)


def _sampling(mine: Stage, other: Stage, k: int) -> float:
    """Variance from sampling of the mean over the seeds that the other group has too."""
    own = zip(_by_seed(mine, k), mine.seeds, strict=True)
    shared = [variance for variance, seed in own if seed in other.seeds]
    return float(np.mean(shared) / len(shared))


@cache
def _by_seed(stage: Stage, k: int) -> list[float]:
    """Variance from sampling of each seed's mean over problems; NaN where it is not known."""
    found = []
    for counts in stage.counts:
        variance = sampling_variance(counts["c"].to_numpy(), counts["n"].to_numpy(), k)
        known = variance[~np.isnan(variance)]
        found.append(known.mean() / known.size if known.size else np.nan)
    return found
