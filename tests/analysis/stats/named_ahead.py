"""Errors and power of what is named ahead: a margin, a control, contrasts; in simulated studies.

    python -m tests.analysis.stats.named_ahead [studies=N]

Studies are those of `tests.analysis.stats.family_wise`. Equality: two arms differ by exactly the
margin, or not at all. A control (the first arm) and contrasts (each arm and the next): the
family-wise error without a difference, and the share of pairs that is separated where arms lie
evenly, or of the last arm from the control where this arm alone differs. Beside them: the same
pairs under Holm's correction, over these pairs and over all.
"""

from __future__ import annotations

import sys
from functools import cache
from itertools import pairwise

import numpy as np

from analysis.load.run_folders import Contrast
from analysis.stats import named_pairs
from analysis.stats.differences import SIGNIFICANCE, holm, p_values, paired_differences
from analysis.stats.equivalence import equality_p_values
from analysis.stats.named_pairs import contrast_tests
from tests.analysis.stats.family_wise import LEAD, STRENGTH_SD, study

SEED_SD = 0.2  # of the spread "equal"
MARGINS = (0.03, 0.05, 0.1)
SEED_COUNTS = (3, 5, 10)
DESIGNS = ((5, 3), (5, 5), (15, 3), (15, 5))
SPREADS = ("equal", "unequal", "one wild")
ALONE = 1.0  # logits of an arm that alone differs
DRAWS = 4_000  # of Dunnett's null distribution: enough for a rate of errors


@cache
def lead_of(margin: float) -> float:
    """Return the logits between two arms whose expected pass@1 differs by `margin`."""
    from scipy.optimize import brentq

    random = np.random.default_rng(0)
    odds = random.beta(0.5, 0.9, 200_000).clip(1e-4, 1 - 1e-4)
    logits = np.log(odds / (1 - odds))
    logits += random.normal(0, np.hypot(STRENGTH_SD, SEED_SD), logits.size)

    def excess(lead: float) -> float:
        above, below = (1 / (1 + np.exp(-(logits + side * lead))) for side in (0.5, -0.5))
        return float((above - below).mean()) - margin

    return float(brentq(excess, 0, 4, xtol=1e-4))


def equal_shares(
    seeds: int, difference: float, margins: tuple[float, ...], studies: int
) -> list[float]:
    """Return for each margin how often arms that truly differ by `difference` are called equal."""
    random = np.random.default_rng([seeds, round(1000 * difference)])
    lead = lead_of(difference) / 2 if difference else 0.0
    called = []
    for _ in range(studies):
        (pair,) = paired_differences(study(2, seeds, "equal", lead, random), ["pass@1"])
        called.append([equality_p_values(pair.estimate, m) < SIGNIFICANCE for m in margins])
    return np.mean(called, axis=0).tolist()


def separations(
    arms: int, seeds: int, spread: str, lead: float | np.ndarray, random: np.random.Generator
) -> dict[str, list[bool]]:
    """Return family → whether each of its pairs is separated, in one simulated study."""
    pairs = paired_differences(study(arms, seeds, spread, lead, random), ["pass@1"])
    labels = [f"{arm:02}" for arm in range(arms)]
    against = named_pairs.control_differences(pairs, labels[0])
    named = [Contrast(a, b) for a, b in pairwise(labels)]
    return {
        "control": [pair.separated for pair in against],
        "control, Holm": [p < SIGNIFICANCE for p in holm(p_values(against))],
        "control, all pairs": [pair.separated for pair in pairs if pair.a == labels[0]],
        "contrasts": [one.p < SIGNIFICANCE for one in contrast_tests(pairs, named)],
        "contrasts, all pairs": [p.separated for p in pairs if Contrast(p.a, p.b) in named],
    }


def errors(arms: int, seeds: int, spread: str, studies: int) -> dict[str, float]:
    """Return family → share of studies without a difference in which a pair is separated."""
    random = np.random.default_rng([arms, seeds, SPREADS.index(spread), 7])
    found = [separations(arms, seeds, spread, 0.0, random) for _ in range(studies)]
    return {family: float(np.mean([any(one[family]) for one in found])) for family in found[0]}


def powers(arms: int, seeds: int, studies: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return family → share of separated pairs of even arms, and of the last arm that differs."""
    random = np.random.default_rng([arms, seeds, 8])
    even = [separations(arms, seeds, "equal", LEAD, random) for _ in range(studies)]
    lead = np.r_[np.zeros(arms - 1), ALONE]
    alone = [separations(arms, seeds, "equal", lead, random) for _ in range(studies)]
    return (
        {family: float(np.mean([one[family] for one in even])) for family in even[0]},
        {family: float(np.mean([one[family][-1] for one in alone])) for family in alone[0]},
    )


def print_equality(studies: int) -> None:
    """Print a row for each number of seeds: per margin, false and true answers "equal"."""
    print("seeds | for each margin: called equal if arms differ by it, if they do not")
    for seeds in SEED_COUNTS:
        true = equal_shares(seeds, 0.0, MARGINS, studies)
        false = [equal_shares(seeds, margin, (margin,), studies)[0] for margin in MARGINS]
        cells = (f"{m}: {f:.3f} {t:.2f}" for m, f, t in zip(MARGINS, false, true, strict=True))
        print(f"{seeds:5} | {' | '.join(cells)}", flush=True)


def print_families(arms: int, seeds: int, studies: int) -> None:
    """Print the family-wise error at each spread, and the power, of one design."""
    for spread in SPREADS:
        found = errors(arms, seeds, spread, studies)
        print(arms, seeds, spread, {f: f"{share:.3f}" for f, share in found.items()}, flush=True)
    for kind, found in zip(("even", "one differs"), powers(arms, seeds, studies // 4), strict=True):
        print(arms, seeds, kind, {f: f"{share:.2f}" for f, share in found.items()}, flush=True)


def main(studies: int = 300) -> None:
    """Print both tables; two arms take three times, many arms half the studies."""
    named_pairs.DRAWS = DRAWS
    print_equality(3 * studies)
    for arms, seeds in DESIGNS:
        print_families(arms, seeds, studies if arms < 10 else studies // 2)


if __name__ == "__main__":
    main(*(int(argument.removeprefix("studies=")) for argument in sys.argv[1:]))
