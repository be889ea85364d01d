"""Family-wise error and power of the corrected tests, in studies simulated from a model.

    python -m tests.analysis.stats.family_wise [studies=N]

In logits, the probability of a right program varies over problems, over an arm's strengths among
them and over its seeds; 20 samples are then drawn from it. Of the null studies, none has a true
difference, so that any separated pair is an error. Of the others, arms are spread evenly from -1.2
to 1.2 logits, and power is the share of separated pairs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from analysis.metrics.scores import ScoreGrid
from analysis.stats.differences import paired_differences

PROBLEMS, SAMPLES = 120, 20
STRENGTH_SD = 0.6  # of an arm on a problem, in logits
LEAD = 1.2
SPREADS: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    # arms → the standard deviation over each arm's seeds, in logits
    "equal": lambda arms, _: np.full(arms, 0.2),
    "unequal": lambda arms, _: np.linspace(0.05, 0.4, arms),
    "drawn": lambda arms, random: 0.2 * np.sqrt(4 / random.chisquare(4, arms)),
    "one wild": lambda arms, _: np.r_[np.full(arms - 1, 0.15), 0.9],
    "one seed in ten fails": lambda arms, _: np.full(arms, 0.2),
}
DESIGNS = ((2, 5), (3, 3), (5, 2), (5, 3), (5, 5), (15, 2), (15, 3), (15, 5), (15, 10))


def study(
    arms: int, seeds: int, spread: str, lead: float | np.ndarray, random: np.random.Generator
) -> list:
    """Return the groups of one simulated study, for `paired_differences`.

    `lead` spreads the arms evenly from -lead to lead logits, or is one for each arm.
    """
    leads = np.linspace(-lead, lead, arms) if np.ndim(lead) == 0 else np.asarray(lead)
    difficulty = np.log(odds := random.beta(0.5, 0.9, PROBLEMS).clip(1e-4, 1 - 1e-4)) - np.log1p(
        -odds
    )
    of_seed = random.normal(size=(arms, seeds)) * SPREADS[spread](arms, random)[:, None]
    if spread == "one seed in ten fails":
        of_seed -= 2.0 * (random.random((arms, seeds)) < 0.1)
    strength = random.normal(size=(arms, PROBLEMS)) * STRENGTH_SD
    logits = difficulty + leads[:, None, None] + of_seed[:, :, None]
    values = random.binomial(SAMPLES, 1 / (1 + np.exp(-(logits + strength[:, None])))) / SAMPLES
    problems = tuple(f"p{i}" for i in range(PROBLEMS))
    return [
        SimpleNamespace(
            label=f"{arm:02}",
            grids={"pass@1": ScoreGrid(tuple(range(seeds)), problems, own, np.ones_like(own))},
        )
        for arm, own in enumerate(values)
    ]


def rates(
    arms: int, seeds: int, spread: str, studies: int, lead: float = 0.0
) -> tuple[float, float]:
    """Return the shares of studies with a separated pair, and of pairs that are separated."""
    random = np.random.default_rng([arms, seeds, list(SPREADS).index(spread)])
    any_pair, pairs = 0, 0.0
    for _ in range(studies):
        found = paired_differences(study(arms, seeds, spread, lead, random), ["pass@1"])
        separated = [pair.separated for pair in found]
        any_pair += any(separated)
        pairs += float(np.mean(separated))
    return any_pair / studies, pairs / studies


def main(studies: int = 400) -> None:
    """Print a row for each design and spread."""
    print("arms seeds spread                  family-wise error   power")
    for arms, seeds in DESIGNS:
        for spread in SPREADS:
            error, _ = rates(arms, seeds, spread, studies)
            _, power = rates(arms, seeds, spread, max(studies // 8, 20), LEAD)
            print(f"{arms:4} {seeds:5} {spread:22} {error:18.3f} {power:7.2f}", flush=True)


if __name__ == "__main__":
    main(*(int(argument.removeprefix("studies=")) for argument in sys.argv[1:]))
