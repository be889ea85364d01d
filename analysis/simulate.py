"""How often the report's intervals hold the truth: comparisons drawn from a model of one.

    python -m analysis.simulate

The chance of a right program has, in logits, a spread over problems, over an algorithm's strengths
and weaknesses among them, over seeds and over what each seed makes of each problem; 20 samples are
then drawn from it. Four algorithms, of which three are equal, share problems and, half of its
variance, each seed's luck.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from math import comb

import numpy as np

from analysis.stats.differences import SIGNIFICANCE, holm
from analysis.stats.intervals import Terms, spread, terms
from analysis.stats.power import smallest_difference

SAMPLES = 20
AHEAD = 0.3  # logits of the first algorithm over the three equal ones
GROUPS = 4
OF_PROBLEMS, OF_STRENGTHS, OF_REST = 2.5, 1.0, 1.0  # standard deviations in logits
SEEDS = (1, 2, 3, 5)
REPETITIONS = 10_000  # of 95 %: two standard errors are half a point
BLOCK = 100  # repetitions at a time, for the sake of memory


@dataclass(frozen=True)
class Design:
    """One kind of comparison; `of_seeds` is the standard deviation over seeds, in logits.

    Of 0, 0.15, 0.4 and 0.8 logits, pass@1 of equally trained models comes to differ by a standard
    deviation of about 0, 0.02, 0.05 and 0.09.
    """

    problems: int
    of_seeds: float
    k: int


DESIGNS = [Design(*found) for found in product((30, 120), (0.0, 0.15, 0.4, 0.8), (1, 10))]


def pass_at(k: int) -> np.ndarray:
    """pass@k by the number of accepted samples."""
    return np.array([1 - comb(SAMPLES - c, k) / comb(SAMPLES, k) for c in range(SAMPLES + 1)])


def chances(random: np.random.Generator, design: Design, shape: tuple[int, int]) -> np.ndarray:
    """(repetitions, GROUPS, seeds, problems): chance of each sample to be accepted."""
    repetitions, seeds = shape
    each = (repetitions, GROUPS, seeds, design.problems)
    luck = random.normal(0, design.of_seeds, (2, *each[:3], 1))
    luck[1] = luck[1, :, :1]
    logits = (
        AHEAD * (np.arange(GROUPS) == 0)[:, None, None]
        + random.normal(0, OF_PROBLEMS, (repetitions, 1, 1, design.problems))
        + random.normal(0, OF_STRENGTHS, (repetitions, GROUPS, 1, design.problems))
        + luck.sum(axis=0) / np.sqrt(2)
        + random.normal(0, OF_REST, each)
    )
    return 1 / (1 + np.exp(-logits))


def truth(design: Design) -> np.ndarray:
    """(GROUPS,): pass@k of the algorithm, over all problems and seeds there could be."""
    everything = Design(1, design.of_seeds, design.k)
    p = chances(np.random.default_rng(1), everything, (200_000, 1))
    means = (1 - (1 - p) ** design.k).mean(axis=(0, 2, 3))
    means[1:] = means[1:].mean()
    return means


@dataclass(frozen=True)
class Found:
    """Of all repetitions: how often a group's and a pair's interval held the truth, how often the
    three equal algorithms were told apart, and how often a pair was that lay the smallest
    difference apart which the design is said to see."""

    group: float
    pair: float
    false_tiers: float
    power: float


def trial(design: Design, repetitions: int, seeds: tuple[int, ...] = SEEDS) -> dict[int, Found]:
    """By number of seeds, of one and the same repetitions."""
    found: dict[int, list[tuple[np.ndarray, ...]]] = {count: [] for count in seeds}
    true, score = truth(design), pass_at(design.k)
    for block in range(0, repetitions, BLOCK):
        random = np.random.default_rng([2, block])
        p = chances(random, design, (min(BLOCK, repetitions - block), max(seeds)))
        values = score[random.binomial(SAMPLES, p)]
        for count in seeds:
            part = values[:, :, :count]
            found[count].append(_held(terms(part, np.ones_like(part)), true))
    return {
        count: _rates(*map(np.concatenate, zip(*parts, strict=True)))
        for count, parts in found.items()
    }


def _held(of: Terms, true: np.ndarray) -> tuple[np.ndarray, ...]:
    def group(i: int) -> Terms:
        return Terms(of.means[:, i], of.parts[:, i], of.shares[:, i])

    single = spread(group(0))
    pair = spread(group(0) - group(1))
    equal = [spread(group(i) - group(j)) for i, j in ((1, 2), (1, 3), (2, 3))]
    p = np.stack([one.p_value() for one in equal], axis=-1)
    told_apart = np.array([min(holm(row)) < SIGNIFICANCE for row in p])
    error = pair.mean - (true[0] - true[1])
    return (
        np.abs(single.mean - true[0]) <= single.half_width(),
        np.abs(error) <= pair.half_width(),
        told_apart,
        error,
        pair.half_width(),
        smallest_difference(pair),
    )


def _rates(group, pair, told_apart, error, half, smallest) -> Found:  # type: ignore[no-untyped-def]
    power = np.mean(error + np.median(smallest) > half)
    return Found(*(float(np.mean(x)) for x in (group, pair, told_apart)), float(power))


def main() -> int:
    """Print a line for each design and number of seeds, and what they come to."""
    print(f"{REPETITIONS} repetitions each, {SAMPLES} samples a problem, 95 % intervals")
    print("problems  sd of seeds  k   seeds  groups  pairs  false tiers  power at 80 %")
    held: dict[int, list[Found]] = {count: [] for count in SEEDS}
    for design in DESIGNS:
        for count, found in trial(design, REPETITIONS).items():
            held[count].append(found)
            row = f"{found.group:6.3f}"
            if count > 1:
                row += f" {found.pair:6.3f} {found.false_tiers:12.3f} {found.power:12.3f}"
            print(
                f"{design.problems:8d} {design.of_seeds:12.2f} {design.k:3d} {count:6d}  {row}",
                flush=True,
            )
    for count, of_count in held.items():
        groups, pairs = _ends(f.group for f in of_count), _ends(f.pair for f in of_count)
        false = max(f.false_tiers for f in of_count)
        more = f", pairs {pairs}, false tiers at most {false:.3f}" if count > 1 else ""
        print(f"{count} seeds: groups {groups}{more}")
    return 0


def _ends(values: Iterable[float]) -> str:
    values = list(values)
    return f"{min(values):.3f} to {max(values):.3f}, mean {np.mean(values):.3f}"


if __name__ == "__main__":
    sys.exit(main())
