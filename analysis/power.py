"""What a design can see: the parts of its noise, and what would make it see less than it does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.intervals import LEVEL, Spread

POWER = 0.8
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

    def shares(self) -> dict[str, float]:
        """Each part's share of the whole that is known."""
        parts = {name: getattr(self, name) for name in self.__slots__}
        whole = np.nansum(list(parts.values()))
        return {name: part / whole if whole > 0 else np.nan for name, part in parts.items()}


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


def needed(pair: Spread, parts: Noise, samples: int, wish: float) -> dict[str, float]:
    """How many seeds, samples a problem, or problems let the design see a difference of `wish`.

    Each with the others as they are; infinite where no number up to MOST times that of now will do.
    """
    factor = np.arange(1, MOST * 10 + 1) / 10
    found = {
        "seeds": _enough(pair, parts, wish, np.maximum(np.ceil(factor * pair.seeds), 2), "seeds"),
        "samples": float("nan"),
        "problems": _enough(pair, parts, wish, np.ceil(factor * pair.problems), "problems"),
    }
    if not np.isnan(parts.sampling):
        found["samples"] = _enough(pair, parts, wish, np.ceil(factor * samples), "samples", samples)
    return found


def _enough(
    pair: Spread, parts: Noise, wish: float, tried: np.ndarray, what: str, samples: int = 1
) -> float:
    """The least of `tried` with which `wish` can be seen; more of anything lets one see more."""
    coarse = tried[:: max(1, int(np.sqrt(len(tried))))]
    seen = _sees(pair, parts, wish, coarse, what, samples)
    place = int(seen.argmax()) if seen.any() else len(coarse)
    ends = (coarse[place - 1] if place else 0, coarse[place] if seen.any() else tried[-1])
    fine = tried[(tried > ends[0]) & (tried <= ends[1])]
    found = fine[_sees(pair, parts, wish, fine, what, samples)]
    return float(found.min()) if found.size else float("inf")


def _sees(
    pair: Spread, parts: Noise, wish: float, tried: np.ndarray, what: str, samples: int
) -> np.ndarray:
    """Whether `wish` could be seen with so many of `what`, the rest as it is."""
    now = {"seeds": pair.seeds, "samples": samples, "problems": pair.problems}[what]
    less = now / tried
    sampling = np.nan_to_num(parts.sampling)
    rest = (parts.interaction + sampling * (less if what == "samples" else 1)) * (
        1 if what == "samples" else less
    )
    then = Spread(
        np.zeros_like(tried),
        parts.seeds * (less if what == "seeds" else np.ones_like(tried)),
        parts.problems * (less if what == "problems" else 1) + rest,
        rest,
        tried if what == "seeds" else np.full_like(tried, pair.seeds),
        tried if what == "problems" else np.full_like(tried, pair.problems),
    )
    return smallest_difference(then) <= wish
