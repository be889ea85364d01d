"""Studies simulated from a model, many at once, and the corrected tests of `analysis.stats`.

In logits, the probability of a right program varies over problems, over an arm's strengths among
them and over its seeds; 20 samples are then drawn from it. Everything is measured, so the paired
differences of all arms follow from inner products: the numbers of `paired_differences`, as a test
shows, without a Python loop over pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from types import SimpleNamespace

import numpy as np

from analysis import comparisons as named_pairs
from analysis.comparisons import SIGNIFICANCE, with_control
from analysis.intervals import Estimate, moderate, moderated_difference, seed_spread
from analysis.scores import ScoreGrid

PROBLEMS, SAMPLES = 120, 20
STRENGTH_SD = 0.6  # of an arm on a problem, in logits
DRAWS = 4_000  # of Dunnett's null distribution: enough for a rate of errors
BLOCK = 50  # studies at a time, to bound memory

Spread = Callable[[int, int, np.random.Generator], np.ndarray]
SPREADS: dict[str, Spread] = {
    # (studies, arms) → the standard deviation over each arm's seeds, in logits
    "equal": lambda studies, arms, _: np.full((studies, arms), 0.2),
    "unequal": lambda studies, arms, _: np.tile(np.linspace(0.05, 0.4, arms), (studies, 1)),
    "drawn": lambda studies, arms, random: 0.2 * np.sqrt(4 / random.chisquare(4, (studies, arms))),
    "one wild": lambda studies, arms, _: np.tile(np.r_[np.full(arms - 1, 0.15), 0.9], (studies, 1)),
    "wild control": lambda studies, arms, _: np.tile(
        np.r_[0.9, np.full(arms - 1, 0.15)], (studies, 1)
    ),
    "one seed in ten fails": lambda studies, arms, _: np.full((studies, arms), 0.2),
}


def problem_logits(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return how easy problems are, in logits."""
    shares = random.beta(0.5, 0.9, shape).clip(1e-4, 1 - 1e-4)
    return np.log(shares) - np.log1p(-shares)


def scores(
    leads: np.ndarray,
    spread: str | tuple[float, ...],
    seeds: int,
    studies: int,
    random: np.random.Generator,
) -> np.ndarray:
    """Return pass@1 (studies, arms, seeds, PROBLEMS).

    `leads` (arms,) are in logits. `spread` is a name in SPREADS, or the arms' standard deviations.
    """
    arms = len(leads)
    named = isinstance(spread, str)
    sd = SPREADS[spread](studies, arms, random) if named else np.tile(spread, (studies, 1))
    of_seed = random.normal(size=(studies, arms, seeds, 1)) * sd[:, :, None, None]
    if named and spread == "one seed in ten fails":
        of_seed -= 2.0 * (random.random(of_seed.shape) < 0.1)
    strength = random.normal(size=(studies, arms, 1, PROBLEMS)) * STRENGTH_SD
    easy = problem_logits(random, (studies, 1, 1, PROBLEMS))
    logits = easy + np.asarray(leads)[:, None, None] + of_seed + strength
    return random.binomial(SAMPLES, 1 / (1 + np.exp(-logits))) / SAMPLES


def groups(values: np.ndarray) -> list:
    """Return one study's scores (arms, seeds, problems) as groups for `paired_differences`."""
    problems, seeds = tuple(f"p{i}" for i in range(values.shape[2])), tuple(range(values.shape[1]))
    return [
        SimpleNamespace(
            label=f"{arm:02}",
            grids={"pass@1": ScoreGrid(seeds, problems, own, np.ones_like(own))},
        )
        for arm, own in enumerate(values)
    ]


# All pairs of arms: first < second, in order, so that the first arms - 1 are those with arm 0.


@dataclass(frozen=True)
class Pairs:
    """The differences first - second of simulated studies; estimates are (studies, pairs).

    `own` has each pair's own spread over seeds, `moderated` that of `analysis.stats.moderation`,
    which took `lowered` (studies,) from the variance of arm 0.
    """

    arms: int
    own: Estimate
    moderated: Estimate
    lowered: np.ndarray

    def of(self, places: np.ndarray) -> Estimate:
        """Return the moderated differences of these pairs."""
        return _pick(self.moderated, np.s_[:, places])

    @property
    def with_control(self) -> Estimate:
        """The differences of arm 0 and each other, as they are tested."""
        return with_control(self.of(np.arange(self.arms - 1)), self.lowered[:, None])

    @property
    def neighbours(self) -> np.ndarray:
        """Places of the pairs (arm, next arm)."""
        first, second = np.triu_indices(self.arms, 1)
        return np.flatnonzero(second == first + 1)


def _pick(estimate: Estimate, index: object) -> Estimate:
    return Estimate(**{f.name: getattr(estimate, f.name)[index] for f in fields(estimate)})


def compare(values: np.ndarray) -> Pairs:
    """Return the differences of scores (studies, arms, seeds, problems)."""
    _, arms, seeds, problems = values.shape
    first, second = np.triu_indices(arms, 1)
    means = values.mean(axis=3)
    deviations = (values - means[..., None]) / problems
    by_problem = deviations.mean(axis=2)
    residuals = deviations - by_problem[:, :, None]
    of_seeds = means - means.mean(axis=2, keepdims=True)
    correction, seed_pairs = problems / (problems - 1), seeds * (seeds - 1)

    def squares(x: np.ndarray) -> np.ndarray:
        """Return (studies, pairs) squared distances of the arms' x (studies, arms, …)."""
        flat = x.reshape(*x.shape[:2], -1)
        products = flat @ flat.transpose(0, 2, 1)
        own = np.einsum("sii->si", products)
        return own[:, first] + own[:, second] - 2 * products[:, first, second]

    residual = correction * squares(residuals) / seed_pairs
    own = Estimate(
        mean=(means[:, first] - means[:, second]).mean(axis=2),
        seed_variance=np.maximum(squares(of_seeds) / seed_pairs - residual, 0.0),
        problem_variance=correction * squares(by_problem),
        residual_variance=residual,
        seeds=np.full(residual.shape, float(seeds)),
        problems=np.full(residual.shape, float(problems)),
        seed_freedom=np.full(residual.shape, seeds - 1.0),
    )
    spreads = [seed_spread(study) for study in means]
    variances, freedom = np.array([moderate(*spread) for spread in spreads]).transpose(1, 0, 2)
    one, other = ((variances[:, side], freedom[:, side]) for side in (first, second))
    lowered = np.array([spread[0][0] for spread in spreads]) - variances[:, 0]
    moderated = moderated_difference(own, one, other)
    return Pairs(arms, own, moderated, np.maximum(lowered, 0.0))


def simulated(
    leads: np.ndarray,
    spread: str | tuple[float, ...],
    seeds: int,
    studies: int,
    random: np.random.Generator,
) -> Iterator[Pairs]:
    """Yield the compared studies in blocks."""
    for start in range(0, studies, BLOCK):
        yield compare(scores(leads, spread, seeds, min(BLOCK, studies - start), random))


# Which differences are separated at SIGNIFICANCE, (studies, pairs) each.


def by_holm(differences: Estimate) -> np.ndarray:
    """Return what Holm's correction separates; as `holm` does with p-values, which it avoids."""
    tested, size = differences.tested(), np.abs(differences.mean)
    count, found = size.shape[1], np.zeros(len(size), dtype=int)
    for _ in range(count):
        left = np.maximum(count - found, 1)[:, None]
        separated = size > tested.quantile_distance(1 - SIGNIFICANCE / left / 2)
        if (separated.sum(axis=1) == found).all():
            break
        found = separated.sum(axis=1)
    return separated


def by_dunnett(pairs: Pairs) -> np.ndarray:
    """Return which comparisons with arm 0 step-down Dunnett separates, (studies, arms - 1)."""
    compared = pairs.with_control
    separated = np.zeros(np.shape(compared.mean), dtype=bool)
    reached = np.abs(compared.mean) > compared.tested().quantile_distance(1 - SIGNIFICANCE / 2)
    candidates = np.flatnonzero(reached.any(axis=1))  # no other has a p-value below SIGNIFICANCE
    drawn, named_pairs.DRAWS = named_pairs.DRAWS, DRAWS
    p = _pick(compared, candidates).p_value()
    for study, of_study in zip(candidates, p, strict=True):
        adjusted = named_pairs.step_down(
            of_study.tolist(), _correlation(pairs, compared, int(study))
        )
        separated[study] = np.array(adjusted) < SIGNIFICANCE
    named_pairs.DRAWS = drawn
    return separated


def _correlation(pairs: Pairs, against: Estimate, study: int) -> np.ndarray:
    """Return the correlation of one study's comparisons `against` arm 0."""

    def variance(estimates: Estimate) -> np.ndarray:
        tested = _pick(estimates, study).tested()
        return np.asarray(tested.seed_variance + tested.problem_variance)

    between = np.zeros((pairs.arms, pairs.arms))
    between[np.triu_indices(pairs.arms, 1)] = variance(pairs.moderated)
    between += between.T
    return named_pairs.correlation_of(variance(against), between[1:, 1:])
