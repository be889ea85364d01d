"""Coverage of the intervals of fitted curves, in groups simulated from a known curve.

    python -m tests.analysis.stats.fit_coverage

A problem's chance to be solved goes from the base's to the seed's own limit along the curve, with
C_mid and B the same for all. Limits are logistic: of a problem's difficulty, a seed's luck, and the
algorithm's strength. 20 samples are drawn from each chance. So the mean follows the curve exactly,
and the true A is the mean limit over all problems and seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from analysis.saturation import CurveFit, MeasuredCurve, fit_curve, gain

SAMPLES, PROBLEMS, EVALUATIONS = 20, 120, 8
LAST = 40.0  # the budget at the last evaluation
PROBLEM_SD, BASE = 2.0, -3.5  # logits: of difficulties, and of the base's strength
REPETITIONS = 200  # at 95 %, two standard errors are three points


@dataclass(frozen=True)
class Design:
    """A group's seeds, their standard deviation in logits, and the curve's C_mid and B."""

    seeds: int
    seed_sd: float
    midpoint: float = 12.0
    exponent: float = 1.5


DESIGNS = (
    Design(3, 0.4),
    Design(3, 0.1),
    Design(5, 0.4),
    Design(5, 0.1),
    Design(3, 0.1, midpoint=30.0),
    Design(3, 0.1, midpoint=100.0),
    Design(3, 0.1, exponent=3.0),
)


def true_asymptote(design: Design, strength: float) -> float:
    """Return A: the mean limit over problems and seeds, by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    sd = np.hypot(PROBLEM_SD, design.seed_sd)
    return float(expit(strength + sd * nodes) @ weights / weights.sum())


def simulated_curves(
    design: Design, strengths: Sequence[float], random: np.random.Generator
) -> list[MeasuredCurve]:
    """Return the curves of groups of these strengths, in logits, on the same problems."""
    budget = np.linspace(0, LAST, EVALUATIONS + 1)
    difficulty = random.normal(0, PROBLEM_SD, PROBLEMS)
    shares = np.append(0.0, gain(budget[1:], design.midpoint, design.exponent))
    curves = []
    for number, strength in enumerate(strengths):
        luck = random.normal(0, design.seed_sd, (design.seeds, 1, 1))
        base, limit = expit(BASE + difficulty), expit(strength + luck + difficulty)
        chance = base + (limit - base) * shares[:, None]
        names = tuple(f"{i:03}" for i in range(PROBLEMS))
        seeds = tuple(range(design.seeds))
        values = random.binomial(SAMPLES, chance) / SAMPLES
        spent = np.tile(budget, (design.seeds, 1))
        curves.append(MeasuredCurve(f"g{number}", "step", "pass@1", seeds, names, spent, values))
    return curves


def interval_of_a(one: CurveFit) -> np.ndarray:
    assert one.replicates is not None
    return np.quantile(one.replicates.asymptote, [0.025, 0.975])


def coverage(design: Design, repetitions: int = REPETITIONS) -> tuple[float, float, float]:
    """Return the share of intervals with A, with the difference of two A, and of refused fits."""
    random, strengths = np.random.default_rng(1), (0.0, 0.3)
    truth = [true_asymptote(design, strength) for strength in strengths]
    alone, paired, refused = [], [], []
    for _ in range(repetitions):
        fits = [fit_curve(curve) for curve in simulated_curves(design, strengths, random)]
        refused += [bool(one.refused) for one in fits]
        for one, asymptote in zip(fits, truth, strict=True):
            if not one.refused:
                low, high = interval_of_a(one)
                alone.append(low <= asymptote <= high)
        first, second = (one.replicates for one in fits)
        if first is not None and second is not None:
            low, high = np.quantile(first.asymptote - second.asymptote, [0.025, 0.975])
            paired.append(low <= truth[0] - truth[1] <= high)
    return tuple(float(np.mean(x)) if x else np.nan for x in (alone, paired, refused))


def main() -> int:
    print("| seeds | their SD, logits | C_mid / budget | B | A | difference | refused |")
    print("|---|---|---|---|---|---|---|")
    for design in DESIGNS:
        shares = (f"{100 * share:.1f} %" for share in coverage(design))
        curve = f"{design.midpoint / LAST:g} | {design.exponent:g}"
        print(f"| {design.seeds} | {design.seed_sd} | {curve} | {' | '.join(shares)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
