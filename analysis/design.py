"""What the comparison could have seen, and where its noise comes from, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.differences import Pair
from analysis.intervals import Spread
from analysis.once import once
from analysis.power import Noise, needed, noise, sampling_variance, smallest_difference
from analysis.stages import Stage

WISH = 0.05  # the difference for which the report says what would be needed


def design_table(groups: Sequence[Stage], found: Sequence[Pair], wish: float) -> pd.DataFrame:
    """power.csv: a row for each pair and metric with an interval.

    `separated`: whether the two are, by p-values corrected for all pairs of the metric (Holm);
    `smallest_difference`: what would have been told from 0 in 80 of 100 such comparisons;
    `of_seeds` … `of_sampling`: shares of the difference's variance, NaN where not known;
    `seeds_needed` … to see a difference of `wish`, the rest as it is, infinite where none will do.
    """
    by_label = {group.label: group for group in groups}
    found = [one for one in found if one.seeds > 1]
    if not found:
        return pd.DataFrame()
    ends = [(by_label[one.a], by_label[one.b]) for one in found]
    parts = [noise_of(one, *two) for one, two in zip(found, ends, strict=True)]
    spreads, noises = Spread.of([one.spread for one in found]), Noise.of(parts)
    samples = np.array([min(*a.sizes, *b.sizes) for a, b in ends])
    columns = {name: [getattr(one, name) for one in found] for name in ("a", "b", "metric")}
    columns["separated"] = [one.apart for one in found]
    columns["smallest_difference"] = smallest_difference(spreads)
    columns |= {f"of_{name}": share for name, share in noises.shares().items()}
    columns["wish"] = wish
    more = needed(spreads, noises, samples, wish)
    return pd.DataFrame(columns | {f"{name}_needed": number for name, number in more.items()})


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


@once
def _by_seed(stage: Stage, k: int) -> list[float]:
    """Variance from sampling of each seed's mean over problems; NaN where it is not known."""
    found = []
    for counts in stage.counts:
        variance = sampling_variance(counts["c"].to_numpy(), counts["n"].to_numpy(), k)
        known = variance[~np.isnan(variance)]
        found.append(known.mean() / known.size if known.size else np.nan)
    return found
