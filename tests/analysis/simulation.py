"""Coverage of the report's intervals, in comparisons simulated from a model.

In logits, the probability of a right program varies over problems, over an algorithm's strengths
among them, over seeds, and over pairs of seed and problem; 20 samples are then drawn from it. Four
algorithms, three of them equal, share problems and, for half of its variance, each seed's luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from analysis.comparisons import SIGNIFICANCE, holm
from analysis.intervals import (
    Estimate,
    SeedMeans,
    estimate,
    moderate,
    moderated_difference,
    seed_means,
    seed_spread,
    smallest_difference,
)

SAMPLES = 20
LEAD = 0.3  # logits of the first algorithm over the three equal ones
GROUPS = 4
PROBLEM_SD, STRENGTH_SD, RESIDUAL_SD = 2.5, 1.0, 1.0  # in logits
BLOCK = 100  # repetitions at a time, to bound memory


@dataclass(frozen=True)
class Design:
    """One kind of comparison; `seed_sd` is the standard deviation over seeds, in logits.

    At 0, 0.15, 0.4 and 0.8 logits, pass@1 of equally trained models has a standard deviation of
    about 0, 0.02, 0.05 and 0.09.
    """

    problems: int
    seed_sd: float
    k: int


@dataclass(frozen=True)
class Coverage:
    """Rates over all repetitions.

    - `group`, `pair`: the interval of a group or pair contains the truth
    - `false_tiers`: the three equal algorithms are separated
    - `power`: a pair with the smallest detectable difference of the design is separated
    """

    group: float
    pair: float
    false_tiers: float
    power: float


def pass_at(k: int) -> np.ndarray:
    """Return pass@k by the number of accepted samples."""
    return np.array([1 - comb(SAMPLES - c, k) / comb(SAMPLES, k) for c in range(SAMPLES + 1)])


def acceptance_rates(
    random: np.random.Generator, design: Design, repetitions: int, seeds: int, groups: int = GROUPS
) -> np.ndarray:
    """Return (repetitions, groups, seeds, problems): each sample's probability of acceptance."""
    shape = (repetitions, groups, seeds, design.problems)
    luck = random.normal(0, design.seed_sd, (2, *shape[:3], 1))
    luck[1] = luck[1, :, :1]
    logits = (
        LEAD * (np.arange(groups) == 0)[:, None, None]
        + random.normal(0, PROBLEM_SD, (repetitions, 1, 1, design.problems))
        + random.normal(0, STRENGTH_SD, (repetitions, groups, 1, design.problems))
        + luck.sum(axis=0) / np.sqrt(2)
        + random.normal(0, RESIDUAL_SD, shape)
    )
    return 1 / (1 + np.exp(-logits))


def true_means(design: Design) -> np.ndarray:
    """Return (GROUPS,): each algorithm's pass@k over all possible problems and seeds."""
    one_problem = Design(1, design.seed_sd, design.k)
    p = acceptance_rates(np.random.default_rng(1), one_problem, 200_000, 1)
    means = (1 - (1 - p) ** design.k).mean(axis=(0, 2, 3))
    means[1:] = means[1:].mean()
    return means


def simulate(design: Design, repetitions: int, seed_counts: tuple[int, ...]) -> dict[int, Coverage]:
    """Return the coverage by number of seeds, on the same repetitions."""
    blocks: dict[int, list[dict]] = {count: [] for count in seed_counts}
    truth, scores = true_means(design), pass_at(design.k)
    for start in range(0, repetitions, BLOCK):
        random = np.random.default_rng([2, start])
        size = min(BLOCK, repetitions - start)
        rates = acceptance_rates(random, design, size, max(seed_counts))
        values = scores[random.binomial(SAMPLES, rates)]
        for count in seed_counts:
            part = values[:, :, :count]
            blocks[count].append(_outcomes(seed_means(part, np.ones_like(part)), truth))
    return {count: _coverage(of_count) for count, of_count in blocks.items()}


def _outcomes(means: SeedMeans, truth: np.ndarray) -> dict[str, np.ndarray]:
    """Return what some repetitions came to, arrays (repetitions,)."""

    def group(i: int) -> SeedMeans:
        return SeedMeans(means.means[:, i], means.deviations[:, i], means.shares[:, i])

    spreads = np.array([moderate(*seed_spread(of_study)) for of_study in means.means])
    variances, freedom = spreads[:, 0], spreads[:, 1]  # (repetitions, GROUPS)

    def difference(i: int, j: int) -> Estimate:
        spread_i, spread_j = ((variances[:, n], freedom[:, n]) for n in (i, j))
        return moderated_difference(estimate(group(i) - group(j)), spread_i, spread_j)

    single, pair = estimate(group(0)), difference(0, 1)
    equal = [difference(i, j) for i, j in ((1, 2), (1, 3), (2, 3))]
    p = np.stack([each.p_value() for each in equal], axis=-1)
    error = pair.mean - (truth[0] - truth[1])
    return {
        "group": np.abs(single.mean - truth[0]) <= single.half_width(),
        "pair": np.abs(error) <= pair.half_width(),
        "false_tiers": np.array([min(holm(row)) < SIGNIFICANCE for row in p]),
        "error": np.asarray(error),
        "half_width": pair.half_width(),
        "smallest": smallest_difference(pair),
    }


def _coverage(blocks: list[dict[str, np.ndarray]]) -> Coverage:
    whole = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    detected = whole["error"] + np.median(whole["smallest"]) > whole["half_width"]
    rates = {name: float(np.mean(whole[name])) for name in ("group", "pair", "false_tiers")}
    return Coverage(**rates, power=float(np.mean(detected)))
