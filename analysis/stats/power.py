"""What a design can see: the parts of its noise, and what would make it see less than it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from analysis.load.compute import memoize
from analysis.metrics.evaluated_models import EvaluatedModel
from analysis.stats.differences import Pair
from analysis.stats.intervals import LEVEL, Spread

POWER = 0.8
WHAT = ("seeds", "samples", "problems")  # that a design can have more of
MOST = 1000  # seeds, samples or problems beyond which no design is looked for, as a multiple


@dataclass(frozen=True, slots=True)
class Noise:
    """The variance of a mean or difference by where it comes from; NaN where it is not known.

    `interaction`: which seed does well on which problem, beyond sampling. With one seed `seeds`
    and `interaction` are not known, and the latter is in `problems`.
    """

    seeds: float
    problems: float
    interaction: float
    sampling: float

    @classmethod
    def of(cls, noises: Sequence[Noise]) -> Noise:
        """These of scalars as one of arrays (noises,)."""
        return cls(*(np.array([getattr(one, f.name) for one in noises]) for f in fields(cls)))

    def shares(self) -> dict[str, np.ndarray]:
        """Each part's share of the whole that is known."""
        parts = {name: getattr(self, name) for name in self.__slots__}
        whole = np.nansum(list(parts.values()), axis=0)
        with np.errstate(invalid="ignore"):
            return {name: np.where(whole > 0, part / whole, np.nan) for name, part in parts.items()}


def noise(found: Spread, sampling: float) -> Noise:
    """The parts of a scalar `Spread`; `sampling` is the variance of the samples' part, or NaN."""
    nan = float("nan")
    drawn = 0.0 if np.isnan(sampling) else min(sampling, float(found.of_problems))
    if found.seeds < 2:
        return Noise(nan, float(found.of_problems) - drawn, nan, sampling)
    rest = float(found.of_rest)
    problems = max(float(found.of_problems) - max(rest, drawn), 0.0)
    return Noise(float(found.of_seeds), problems, max(rest - drawn, 0.0), sampling)


def sampling_variance(accepted: np.ndarray, samples: np.ndarray, k: int) -> np.ndarray:
    """Of pass@k of a problem with so many accepted samples, for both arrays' common shape.

    That of pass@k where the accepted are drawn anew with the chance that was seen, times n/(n - 1):
    for k = 1 without bias.
    """
    from analysis.pass_at_k import pass_at_k

    found = np.full(np.shape(accepted), np.nan)
    for n in {int(n) for n in np.unique(samples) if n >= max(k, 2)}:
        score = np.array([pass_at_k(n, c, k) for c in range(n + 1)])
        drawn = _binomials(n)
        variance = (drawn @ score**2 - (drawn @ score) ** 2).clip(0) * n / (n - 1)
        here = samples == n
        found[here] = variance[accepted[here].astype(int)]
    return found


def _binomials(n: int) -> np.ndarray:
    """(n + 1, n + 1): row c has the chances of 0 … n accepted of n where each has chance c/n."""
    from scipy.special import gammaln, xlogy

    c = np.arange(n + 1)
    chance = c[:, None] / n
    ways = gammaln(n + 1) - gammaln(c + 1) - gammaln(n - c + 1)
    return np.exp(ways + xlogy(c, chance) + xlogy(n - c, 1 - chance))


def smallest_difference(pair: Spread, power: float = POWER) -> np.ndarray:
    """The true difference whose interval such a design would keep from 0 so often."""
    usual = pair.cautious()
    return usual.reach((1 + LEVEL) / 2) + usual.reach(power)


def needed(pair: Spread, parts: Noise, samples: np.ndarray, wish: float) -> dict[str, np.ndarray]:
    """How many seeds, samples a problem, or problems let the design see a difference of `wish`.

    Of arrays of one shape. Each with the others as they are; infinite where no number up to MOST
    times that of now will do, NaN where the samples' part of the noise is not known.
    """
    found = {what: _least(pair, parts, samples, wish, what) for what in WHAT}
    return found | {"samples": np.where(np.isnan(parts.sampling), np.nan, found["samples"])}


def _least(pair: Spread, parts: Noise, samples: np.ndarray, wish: float, what: str) -> np.ndarray:
    """The least number with which `wish` can be seen, in tenths of that of now, by bisection: more
    of anything lets one see more."""
    now = {"seeds": pair.seeds, "samples": samples, "problems": pair.problems}[what]
    fewest = 2 if what == "seeds" else 1

    def tried(tenths: np.ndarray) -> np.ndarray:
        return np.maximum(np.ceil(tenths * now / 10), fewest)

    low = np.zeros(np.shape(now), int)
    high = np.full(np.shape(now), MOST * 10)
    for _ in range((MOST * 10).bit_length()):
        middle = (low + high + 1) // 2
        seen = _sees(pair, parts, wish, tried(middle), what, now)
        low, high = np.where(seen, low, middle), np.where(seen, middle, high)
    found = tried(high)
    return np.where(_sees(pair, parts, wish, found, what, now), found, np.inf)


def _sees(
    pair: Spread, parts: Noise, wish: float, tried: np.ndarray, what: str, now: np.ndarray
) -> np.ndarray:
    """Whether `wish` could be seen with so many of `what`, the rest as it is."""
    less = now / tried
    sampling = np.nan_to_num(parts.sampling)
    rest = (parts.interaction + sampling * (less if what == "samples" else 1)) * (
        1 if what == "samples" else less
    )
    then = Spread(
        np.zeros_like(tried),
        parts.seeds * (less if what == "seeds" else 1),
        parts.problems * (less if what == "problems" else 1) + rest,
        rest,
        tried if what == "seeds" else pair.seeds,
        tried if what == "problems" else pair.problems,
    )
    return smallest_difference(then) <= wish


# What the comparison could have seen, and where its noise comes from, pair by pair.


WISH = 0.05  # the difference for which the report says what would be needed


def design_table(
    groups: Sequence[EvaluatedModel], found: Sequence[Pair], wish: float
) -> pd.DataFrame:
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
    samples = np.array([min(*a.sample_counts, *b.sample_counts) for a, b in ends])
    columns = {name: [getattr(one, name) for one in found] for name in ("a", "b", "metric")}
    columns["separated"] = [one.apart for one in found]
    columns["smallest_difference"] = smallest_difference(spreads)
    columns |= {f"of_{name}": share for name, share in noises.shares().items()}
    columns["wish"] = wish
    more = needed(spreads, noises, samples, wish)
    return pd.DataFrame(columns | {f"{name}_needed": number for name, number in more.items()})


def noise_of(one: Pair, a: EvaluatedModel, b: EvaluatedModel) -> Noise:
    """The parts of a pair's noise; that of the samples for pass@k only."""
    sampling = float("nan")
    if one.metric.startswith("pass@"):
        k = int(one.metric.removeprefix("pass@"))
        sampling = sum(_sampling(mine, other, k) for mine, other in ((a, b), (b, a)))
    return noise(one.spread, sampling)


def _sampling(mine: EvaluatedModel, other: EvaluatedModel, k: int) -> float:
    """Variance from sampling of the mean over the seeds that the other group has too."""
    own = zip(_by_seed(mine, k), mine.seeds, strict=True)
    shared = [variance for variance, seed in own if seed in other.seeds]
    return float(np.mean(shared) / len(shared))


@memoize
def _by_seed(stage: EvaluatedModel, k: int) -> list[float]:
    """Variance from sampling of each seed's mean over problems; NaN where it is not known."""
    found = []
    for counts in stage.counts:
        variance = sampling_variance(counts["c"].to_numpy(), counts["n"].to_numpy(), k)
        known = variance[~np.isnan(variance)]
        found.append(known.mean() / known.size if known.size else np.nan)
    return found
