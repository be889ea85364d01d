"""The power of a design: where its noise comes from, and which differences it can detect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from scipy.special import gammaln, xlogy

from analysis.intervals import LEVEL, Estimate, Numbers
from analysis.pass_at_k import pass_at_k

POWER = 0.8
TARGET_DIFFERENCE = 0.05  # for which the report says what would be needed
RESOURCES = ("seeds", "samples", "problems")  # of which a design can have more
MOST = 1000  # designs with more than this multiple of a resource are not considered


@dataclass(frozen=True, slots=True)
class NoiseParts:
    """The variance of a mean or difference by source; NaN where unknown.

    `interaction` is how seeds differ by problem, beyond sampling. With one seed, `seeds` and
    `interaction` are unknown, and the latter is included in `problems`.
    """

    seeds: Numbers
    problems: Numbers
    interaction: Numbers
    sampling: Numbers

    @classmethod
    def stack(cls, noises: Sequence[NoiseParts]) -> NoiseParts:
        """Combine scalar parts into one of arrays (noises,)."""
        return cls(**{f.name: np.array([getattr(n, f.name) for n in noises]) for f in fields(cls)})

    def shares(self) -> dict[str, np.ndarray]:
        """Return each part's share of the known total."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        total = np.nansum(list(parts.values()), axis=0)
        with np.errstate(invalid="ignore"):
            return {name: np.where(total > 0, part / total, np.nan) for name, part in parts.items()}


def noise_parts(scalar: Estimate, sampling: float) -> NoiseParts:
    """Split the variance of a scalar estimate; `sampling` is the variance from samples, or NaN."""
    problem_variance, residual = float(scalar.problem_variance), float(scalar.residual_variance)
    drawn = 0.0 if np.isnan(sampling) else min(sampling, problem_variance)
    if scalar.seeds < 2:
        return NoiseParts(np.nan, problem_variance - drawn, np.nan, sampling)
    return NoiseParts(
        seeds=float(scalar.seed_variance),
        problems=max(problem_variance - max(residual, drawn), 0.0),
        interaction=max(residual - drawn, 0.0),
        sampling=sampling,
    )


def sampling_variance(accepted: np.ndarray, samples: np.ndarray, k: int) -> np.ndarray:
    """Return the sampling variance of pass@k of problems, for arrays of one shape.

    The variance of pass@k when acceptances are redrawn with the observed rate, times n/(n - 1). For
    k = 1 it is unbiased. NaN where pass@k cannot be estimated.
    """
    variances = np.full(np.shape(accepted), np.nan)
    for n in {int(n) for n in np.unique(samples) if n >= max(k, 2)}:
        scores = np.array([pass_at_k(n, c, k) for c in range(n + 1)])
        redrawn = _binomials(n)
        variance = (redrawn @ scores**2 - (redrawn @ scores) ** 2).clip(0) * n / (n - 1)
        of_size = samples == n
        variances[of_size] = variance[accepted[of_size].astype(int)]
    return variances


def _binomials(n: int) -> np.ndarray:
    """Return (n + 1, n + 1): row c has the probabilities of 0 … n of n at success rate c/n."""
    c = np.arange(n + 1)
    rate = c[:, None] / n
    log_binomial = gammaln(n + 1) - gammaln(c + 1) - gammaln(n - c + 1)
    return np.exp(log_binomial + xlogy(c, rate) + xlogy(n - c, 1 - rate))


def smallest_difference(pair: Estimate, power: float = POWER) -> np.ndarray:
    """Return the true difference whose interval excludes 0 with probability `power`."""
    tested = pair.tested()
    return tested.quantile_distance((1 + LEVEL) / 2) + tested.quantile_distance(power)


def smallest_margin(pair: Estimate, tests: int = 1) -> np.ndarray:
    """Return the margin with which a comparison is decided with probability POWER.

    Decided means: called equal if nothing differs, and separated if the true difference is the
    margin. Tests are at the level of the first step of Holm's correction for `tests` pairs.
    """
    tested, level = pair.tested(), (1 - LEVEL) / tests
    separated = tested.quantile_distance(1 - level / 2) + tested.quantile_distance(POWER)
    # Without a difference, the mean may lie on either side.
    equal = tested.quantile_distance(1 - level) + tested.quantile_distance((1 + POWER) / 2)
    return np.maximum(separated, equal)


def resources_to_decide(pair: Estimate, margin: float, tests: int) -> dict[str, np.ndarray]:
    """Return how many seeds, or problems, decide each pair of a family of `tests`, all else equal.

    `pair` is an array of estimates. See `smallest_margin`; the observed differences play no part.
    The number is infinite if no multiple up to MOST suffices.
    """
    parts = [noise_parts(pair.item(i), float("nan")) for i in range(np.size(pair.mean))]
    noise = NoiseParts.stack(parts)
    return {
        what: _least_detecting(
            pair, noise, np.nan, margin, what, lambda changed: smallest_margin(changed, tests)
        )
        for what in ("seeds", "problems")
    }


def resources_needed(
    pair: Estimate, noise: NoiseParts, samples: Numbers, target: float
) -> dict[str, np.ndarray]:
    """Return how many seeds, samples per problem, or problems would detect a difference `target`.

    Arguments are arrays of one shape, or scalars. Each resource varies alone. The number is
    infinite if no multiple up to MOST suffices, and NaN if the sampling variance is unknown.
    """
    needed = {what: _least_detecting(pair, noise, samples, target, what) for what in RESOURCES}
    unknown = np.isnan(noise.sampling)
    return needed | {"samples": np.where(unknown, np.nan, needed["samples"])}


def _least_detecting(
    pair: Estimate,
    noise: NoiseParts,
    samples: Numbers,
    target: float,
    what: str,
    reach: Callable[[Estimate], np.ndarray] = smallest_difference,
) -> np.ndarray:
    """Return the least number of a resource that detects `target`, in tenths of the current number.

    Found by bisection, because more of any resource detects more. `reach`: what a design detects.
    """
    current = {"seeds": pair.seeds, "samples": samples, "problems": pair.problems}[what]
    fewest = 2 if what == "seeds" else 1

    def number(tenths: np.ndarray) -> np.ndarray:
        return np.maximum(np.ceil(tenths * current / 10), fewest)

    low = np.zeros(np.shape(current), int)
    high = np.full(np.shape(current), MOST * 10)
    for _ in range((MOST * 10).bit_length()):
        middle = (low + high + 1) // 2
        detected = reach(_changed(pair, noise, number(middle), what, current)) <= target
        low, high = np.where(detected, low, middle), np.where(detected, middle, high)
    least = number(high)
    detected = reach(_changed(pair, noise, least, what, current)) <= target
    return np.where(detected, least, np.inf)


def _changed(
    pair: Estimate, noise: NoiseParts, number: np.ndarray, what: str, current: Numbers
) -> Estimate:
    """Return the estimate that this number of a resource would give, all else unchanged."""
    factor = current / number
    sampling = np.nan_to_num(noise.sampling)
    residual = (noise.interaction + sampling * (factor if what == "samples" else 1)) * (
        1 if what == "samples" else factor
    )
    return Estimate(
        mean=np.zeros_like(number),
        seed_variance=noise.seeds * (factor if what == "seeds" else 1),
        problem_variance=noise.problems * (factor if what == "problems" else 1) + residual,
        residual_variance=residual,
        seeds=number if what == "seeds" else pair.seeds,
        problems=number if what == "problems" else pair.problems,
        seed_freedom=_freedom(pair, number) if what == "seeds" else pair.seed_freedom,
    )


def _freedom(pair: Estimate, seeds: np.ndarray) -> np.ndarray:
    """Return the degrees of freedom with this number of seeds: as much more as those of one arm."""
    return pair.seed_freedom * (seeds - 1) / np.maximum(np.asarray(pair.seeds) - 1, 1)
