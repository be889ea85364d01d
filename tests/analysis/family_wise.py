"""Family-wise error and power of the corrected tests, in simulated studies.

    python -m tests.analysis.family_wise [studies=N]

Studies are those of `tests.analysis.simulated_studies`. Without a true difference, any
separated pair is an error. Where arms are spread evenly from -1.2 to 1.2 logits, power is the share
of separated pairs. The control is the first arm, contrasts are each arm and the next one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.analysis.simulated_studies import (
    SPREADS,
    Pairs,
    by_dunnett,
    by_holm,
    simulated,
)

LEAD = 1.2
ALL, OWN, CONTROL, CONTROL_HOLM = "all pairs", "own spread", "control", "control, Holm"
CONTRASTS = "contrasts"
DESIGNS = ((3, 3), (5, 2), (5, 3), (5, 5), (15, 2), (15, 3), (15, 5))  # arms, seeds


@dataclass(frozen=True)
class Rates:
    """Of one family of tests, with `studies` simulated ones.

    `error` is the share of studies in which a pair is separated that does not differ, or differs in
    the other direction. `power` is the share of pairs that differ and are separated in their
    direction; NaN where none differs.
    """

    error: float
    power: float
    studies: int

    @property
    def standard_error(self) -> float:
        """The Monte Carlo standard error of `error`, of an error of at least .01."""
        rate = min(max(self.error, 0.01), 0.99)
        return float(np.sqrt(rate * (1 - rate) / self.studies))


def separations(pairs: Pairs, family: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of a family's pairs, and which are separated, (studies, places)."""
    every, control = np.arange(pairs.own.mean.shape[1]), np.arange(pairs.arms - 1)
    if family in (ALL, OWN):
        return every, by_holm(pairs.moderated if family == ALL else pairs.own)
    if family == CONTROL:
        return control, by_dunnett(pairs)
    if family == CONTROL_HOLM:
        return control, by_holm(pairs.with_control)
    return pairs.neighbours, by_holm(pairs.of(pairs.neighbours))


def rates(
    leads: np.ndarray,
    spread: str | tuple[float, ...],
    seeds: int,
    studies: int,
    random: np.random.Generator,
    families: Sequence[str] = (ALL,),
) -> dict[str, Rates]:
    """Return family → its rates over simulated studies of arms with these leads, in logits."""
    first, second = np.triu_indices(len(leads), 1)
    true = np.sign(leads[first] - leads[second])
    wrong: dict[str, list[np.ndarray]] = {family: [] for family in families}
    right: dict[str, list[np.ndarray]] = {family: [] for family in families}
    for pairs in simulated(leads, spread, seeds, studies, random):
        for family in families:
            places, separated = separations(pairs, family)
            agrees = np.sign(pairs.own.mean[:, places]) == true[places]
            wrong[family].append((separated & ~agrees).any(axis=1))
            right[family].append((separated & agrees)[:, true[places] != 0])
    return {
        family: Rates(
            float(np.concatenate(wrong[family]).mean()),
            float(np.concatenate(right[family]).mean()) if true.any() else float("nan"),
            studies,
        )
        for family in families
    }


def null_errors(
    arms: int, seeds: int, spread: str, studies: int, families: Sequence[str]
) -> dict[str, Rates]:
    """Return the rates where no arm differs."""
    random = np.random.default_rng([arms, seeds, list(SPREADS).index(spread)])
    return rates(np.zeros(arms), spread, seeds, studies, random, families)


def main(studies: int = 2000) -> None:
    """Print a row for each design and spread; power with equal spreads from fewer studies."""
    families = (ALL, CONTROL, CONTROL_HOLM, CONTRASTS)
    print(f"{studies} studies; error by family: {', '.join(families)}")
    for arms, seeds in DESIGNS:
        for spread in SPREADS:
            found = null_errors(arms, seeds, spread, studies, families)
            cells = "  ".join(f"{100 * found[family].error:4.1f} %" for family in families)
            print(f"{arms:3} {seeds:2} {spread:22} {cells}", flush=True)
        even, alone = np.linspace(-LEAD, LEAD, arms), np.r_[np.zeros(arms - 1), 1.0]
        for kind, leads in (("power, even arms", even), ("power, last arm differs", alone)):
            random = np.random.default_rng([arms, seeds, 99])
            power = rates(leads, "equal", seeds, max(studies // 8, 20), random, families)
            cells = "  ".join(f"{power[family].power:6.2f}" for family in families)
            print(f"{arms:3} {seeds:2} {kind:22} {cells}", flush=True)


if __name__ == "__main__":
    main(*(int(argument.removeprefix("studies=")) for argument in sys.argv[1:]))
