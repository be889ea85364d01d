"""Family-wise error and power at the designs of this repository's studies, simulated.

    python -m tests.analysis.stats.study_designs [studies=N] [rows=FIRST:LAST]

Prints the table of docs/reference/statistics.md. Effects are the pass@1 of a study's arms, turned
into logits of the model in `tests.analysis.stats.simulated_studies`; the first arm is the control.
Of each design there are N studies without any difference, and N / 5 with its effects.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache

import numpy as np

from tests.analysis.stats.family_wise import ALL, CONTROL, OWN, Rates, rates
from tests.analysis.stats.simulated_studies import STRENGTH_SD, problem_logits

SEED_SD = 0.2  # of the spread "equal"

# pass@1 of each arm, from the pages in docs/results; MAIN from study `mini` when it had 15 arms
# (68a5ae7).
MAIN = (
    *(0.503, 0.390, 0.492, 0.384, 0.336, 0.425, 0.510, 0.321, 0.309, 0.642),
    *(0.600, 0.577, 0.375, 0.311, 0.261),
)
MINI = (
    *(0.454, 0.345, 0.360, 0.207, 0.063, 0.310, 0.219, 0.462, 0.244, 0.318, 0.311, 0.303),
    *(0.313, 0.590, 0.607, 0.556, 0.499, 0.548, 0.550, 0.341, 0.462, 0.279, 0.284),
)
Q0 = (0.650, 0.501, 0.593, 0.452, 0.452, 0.646, 0.617, 0.623, 0.594, 0.587)
OFF_POLICY = (
    *(0.618, 0.652, 0.643, 0.603, 0.648, 0.636, 0.643, 0.587, 0.574),
    *(0.754, 0.749, 0.771, 0.646, 0.573, 0.604, 0.578, 0.610),
)
ATLAS = (
    *(0.486, 0.352, 0.346, 0.344, 0.333, 0.317, 0.316, 0.311, 0.309, 0.308, 0.307, 0.305),
    *(0.304, 0.301, 0.299, 0.299, 0.298, 0.298, 0.297, 0.295, 0.295, 0.294, 0.288, 0.286),
    *(0.286, 0.271, 0.269, 0.262, 0.253, 0.247, 0.243, 0.223, 0.215, 0.215, 0.204, 0.197),
    *(0.162, 0.138, 0.133, 0.098, 0.076),
)
# Standard deviation over the five seeds of each arm of `mini`, in logits, in the order of MINI.
MINI_SD = (
    *(0.087, 0.178, 0.335, 0.221, 0.254, 0.188, 0.232, 0.109, 0.109, 0.206, 0.522, 0.279),
    *(0.248, 0.227, 0.268, 0.171, 0.310, 0.322, 0.127, 0.176, 0.086, 0.287, 0.224),
)
CLUSTERS = np.repeat(np.linspace(-1.2, 1.2, 5), 3)


@dataclass(frozen=True)
class Design:
    """Arms with their leads in logits, the control first. `spread` is as in `scores`."""

    name: str
    leads: np.ndarray
    seeds: int
    spread: str | tuple[float, ...] = "equal"


@cache
def _expected_pass() -> tuple[np.ndarray, np.ndarray]:
    """Return leads, in logits, and the expected pass@1 at each."""
    random = np.random.default_rng(0)
    logits = problem_logits(random, (20_000,))
    logits += random.normal(0, np.hypot(STRENGTH_SD, SEED_SD), logits.size)
    leads = np.linspace(-6, 6, 121)
    return leads, np.array([(1 / (1 + np.exp(-(logits + lead)))).mean() for lead in leads])


def leads_of(shares: tuple[float, ...]) -> np.ndarray:
    """Return the leads of arms whose expected pass@1 these are."""
    leads, expected = _expected_pass()
    return np.interp(shares, expected, leads)


def designs() -> list[Design]:
    """Return the rows of the table."""
    main, mini = leads_of(MAIN), leads_of(MINI)
    unequal = tuple(np.quantile(MINI_SD, np.linspace(0, 1, len(MAIN))).tolist())
    return [
        Design("effects of `mini`", main, 5),
        Design("the same at three seeds", main, 3),
        Design("five clusters of three equal arms", CLUSTERS, 5),
        Design("spread as unequal as in `mini`", main, 5, unequal),
        Design("one wild arm", main, 5, "one wild"),
        Design("wild control", main, 5, "wild control"),
        Design("`mini`: its arms and spreads", mini, 5, MINI_SD),
        Design("`q0`", leads_of(Q0), 3),
        Design("`offpolicy`", leads_of(OFF_POLICY), 3),
        Design("`atlas`", leads_of(ATLAS), 2),
    ]


@cache
def without_effects(
    arms: int, seeds: int, spread: str | tuple[float, ...], studies: int
) -> dict[str, Rates]:
    """Return the rates where no arm differs."""
    random = np.random.default_rng([arms, seeds, 1])
    return rates(np.zeros(arms), spread, seeds, studies, random, (ALL, CONTROL))


def with_effects(design: Design, studies: int) -> dict[str, Rates]:
    """Return the rates with the design's effects."""
    random = np.random.default_rng([len(design.leads), design.seeds, 2])
    families = (ALL, OWN, CONTROL)
    return rates(design.leads, design.spread, design.seeds, studies, random, families)


def row(design: Design, studies: int) -> list[str]:
    """Return one line of the table."""
    none = without_effects(len(design.leads), design.seeds, design.spread, studies)
    effects = with_effects(design, max(studies // 5, 10))

    def error(rates: Rates) -> str:
        return f"{100 * rates.error:.1f} ± {100 * rates.standard_error:.1f}"

    return [
        design.name,
        f"{len(design.leads)}, {design.seeds}",
        *(error(none[ALL]), error(effects[ALL])),
        *(f"{effects[family].power:.2f}" for family in (ALL, OWN)),
        *(error(none[CONTROL]), error(effects[CONTROL]), f"{effects[CONTROL].power:.2f}"),
    ]


HEADINGS = (
    *("design", "arms, seeds", "all pairs: error, %", "with effects", "power", "power before"),
    *("control: error, %", "with effects", "power"),
)


def main(*arguments: str) -> None:
    """Print the table, or some of its rows."""
    given = dict(argument.split("=") for argument in arguments)
    studies, rows = int(given.get("studies", 2000)), given.get("rows", ":")
    first, last = (int(end) if end else None for end in rows.split(":"))
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    for design in designs()[first:last]:
        print(f"| {' | '.join(row(design, studies))} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
