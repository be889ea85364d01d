"""How often the best of 24 trials by one seed is the best in truth, and with re-scores.

    python -m tests.experiments.studies.simulation

The truth and the noise are those of the eight trials of each arm that tuned `study=mini` at commit
ecac8fe (pass@1 after 40 steps, one seed): a cubic in log10(rate) fitted to each arm. Its residuals
are the noise: .038 over six arms, where they also hold the effect of a second tuned key, and .027
over the two arms that tuned the rate alone. Sampling 600 answers alone gives .019 at pass@1 .3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.markdown import table

SEEDS = 3
BEST = 3  # trials that are run again

COMMON = [6.086e-4, 1.229e-4, 5.434e-5, 4.707e-4, 3.589e-5]  # rates of every arm's first trials
TRIALS = {  # arm → rates of its later trials, and pass@1 of all
    "grpo": (
        [1.591e-3, 2.676e-3, 3.508e-4],
        [0.302, 0.13, 0.075, 0.248, 0.067, 0.113, 0.015, 0.213],
    ),
    "luffy_half": (
        [2.038e-3, 3.343e-4, 2.788e-3],
        [0.15, 0.107, 0.072, 0.21, 0.06, 0.015, 0.202, 0],
    ),
    "ppo": (
        [1.533e-3, 4.046e-4, 1.393e-3],
        [0.247, 0.125, 0.09, 0.288, 0.058, 0.112, 0.175, 0.208],
    ),
    "sft": (
        [2.038e-3, 3.343e-4, 2.788e-3],
        [0.333, 0.175, 0.112, 0.373, 0.092, 0.257, 0.315, 0.153],
    ),
    "spo": ([1.591e-3, 2.676e-3, 3.508e-4], [0.28, 0.147, 0.085, 0.278, 0.067, 0.118, 0, 0.145]),
    "spo_half": (
        [1.533e-3, 4.046e-4, 1.393e-3],
        [0.332, 0.183, 0.115, 0.365, 0.092, 0.207, 0.328, 0.315],
    ),
}
ONE_KEY = ("luffy_half", "sft")
LOW, HIGH = np.log10([3e-5, 3e-3])  # the rates that were tried


def fit(arm: str) -> tuple[np.ndarray, float]:
    """The coefficients of an arm's cubic, and the sum of squared residuals (4 of 8 are free)."""
    later, scores = TRIALS[arm]
    rates = np.log10(COMMON + later)
    powers = np.vander(rates, 4)
    coefficients, *_ = np.linalg.lstsq(powers, np.array(scores), rcond=None)
    return coefficients, float(((scores - powers @ coefficients) ** 2).sum())


def noise(arms) -> float:
    """The pooled residual standard deviation of these arms."""
    return float(np.sqrt(sum(fit(arm)[1] for arm in arms) / (4 * len(arms))))


@dataclass
class Picks:
    """Of one way to pick a winner, means over repetitions and arms."""

    best: float  # share that is the best of all trials in truth
    loss: float  # how far the winner is below the best
    excess: float  # how far the scores that picked it are above its truth


def simulate(sd: float, repetitions: int, trials: int = 24) -> tuple[Picks, Picks]:
    """Picks by the trial's own score, and by the mean of BEST on three fresh seeds.

    Half of the trials have random rates, the others are within a quarter of a decade of the best
    rate, as the sampler's are. The noise is normal and independent.
    """
    random = np.random.default_rng(0)
    found: list[list[Picks]] = [[], []]
    for arm in TRIALS:
        coefficients, _ = fit(arm)
        grid = np.linspace(LOW, HIGH, 400)
        top = grid[np.polyval(coefficients, grid).argmax()]
        half = repetitions, trials // 2
        near = random.uniform(top - 0.25, top + 0.25, half)
        rates = np.hstack([random.uniform(LOW, HIGH, half), np.clip(near, LOW, HIGH)])
        truth = np.clip(np.polyval(coefficients, rates), 0, None)
        scores = truth + random.normal(0, sd, truth.shape)
        order = np.argsort(-scores, axis=1)[:, :BEST]
        candidates = np.take_along_axis(truth, order, 1)
        means = candidates + random.normal(0, sd / np.sqrt(SEEDS), candidates.shape)
        rows, again = np.arange(repetitions), means.argmax(1)
        for picks, picked, score in (
            (found[0], candidates[:, 0], scores.max(1)),
            (found[1], candidates[rows, again], means.max(1)),
        ):
            highest = truth.max(1)
            values = (picked == highest, highest - picked, score - picked)
            picks.append(Picks(*(float(each.mean()) for each in values)))
    by_one, by_three = (
        Picks(*np.mean([[p.best, p.loss, p.excess] for p in picks], axis=0)) for picks in found
    )
    return by_one, by_three


def main() -> None:
    """Print the table of docs/reference/protocol.md."""
    rows = []
    for sd in (0.019, noise(ONE_KEY), noise(TRIALS)):
        pair = simulate(sd, 10_000)
        cells = [f"{p.best:.0%}" for p in pair]
        cells += [f"{p.loss:.4f}" for p in pair] + [f"{p.excess:.3f}" for p in pair]
        rows.append([f"{sd:.3f}", *cells])
    heading = [
        f"{what}, {by}" for what in ("best", "loss", "excess") for by in ("trial", "re-score")
    ]
    print(table(["noise", *heading], rows))


if __name__ == "__main__":
    main()
