"""How often arms are called equal within a margin that was named ahead, in simulated studies.

    python -m tests.analysis.stats.named_ahead [studies=N]

Studies are those of `tests.analysis.stats.simulated_studies`. Two arms differ by exactly the
margin, or not at all. A control and contrasts are in `tests.analysis.stats.family_wise`.
"""

from __future__ import annotations

import sys
from functools import cache

import numpy as np

from analysis.comparisons import SIGNIFICANCE, equality_p_values
from tests.analysis.stats.simulated_studies import STRENGTH_SD, problem_logits, simulated

SEED_SD = 0.2  # of the spread "equal"
MARGINS = (0.03, 0.05, 0.1)
SEED_COUNTS = (3, 5, 10)


@cache
def lead_of(margin: float) -> float:
    """Return the logits between two arms whose expected pass@1 differs by `margin`."""
    from scipy.optimize import brentq

    random = np.random.default_rng(0)
    logits = problem_logits(random, (200_000,))
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
    leads = np.array([-lead, lead])
    blocks = list(simulated(leads, "equal", seeds, studies, random))
    return [
        float(
            np.concatenate(
                [equality_p_values(pairs.moderated, margin) < SIGNIFICANCE for pairs in blocks]
            ).mean()
        )
        for margin in margins
    ]


def main(studies: int = 2000) -> None:
    """Print a row for each number of seeds: per margin, false and true answers "equal"."""
    print(f"{studies} studies")
    print("seeds | for each margin: called equal if arms differ by it, if they do not")
    for seeds in SEED_COUNTS:
        true = equal_shares(seeds, 0.0, MARGINS, studies)
        false = [equal_shares(seeds, margin, (margin,), studies)[0] for margin in MARGINS]
        cells = (f"{m}: {f:.3f} {t:.2f}" for m, f, t in zip(MARGINS, false, true, strict=True))
        print(f"{seeds:5} | {' | '.join(cells)}", flush=True)


if __name__ == "__main__":
    main(*(int(argument.removeprefix("studies=")) for argument in sys.argv[1:]))
