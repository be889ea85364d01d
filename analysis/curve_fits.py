"""What more budget would bring: saturating curves fitted to the evaluations of a group.

    R(C) = R0 + (A - R0) / (1 + (C_mid / C)^B)

Khatri et al., "The Art of Scaling Reinforcement Learning Compute for LLMs" (ScaleRL), arXiv
2510.13786, eq. 1. R0 is the score at C = 0, A the score that training approaches, C_mid the budget
of half the gain, and B how suddenly the gain comes. R0 is not fitted: it is the base's measured
score. Given C_mid and B the curve is linear in A, so the least squares over A have a closed form,
and only C_mid and B need a grid. Binomial weights 1 / R(1 - R) are those of the fit before.

A group's curve is the mean over its seeds at every evaluation that all of them have, over the mean
of what they spent. Evaluations share their problems and seeds, so the errors of its points are
correlated. Intervals come from a bootstrap that draws seeds and problems and fits every replicate
anew. A fit is refused, with the reason, where the data do not identify A: it would be a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from analysis.budgets import X_AXES, spend_at_step
from analysis.groups import Group
from analysis.intervals import LEVEL
from analysis.metrics import align_grids, scores_by_step

REPLICATES = 500
MIDPOINTS, EXPONENTS = 40, 24  # of the grid, evenly spaced in logarithms
FINER = 4  # points of the finer grid up to the next of the coarse one
EARLIEST, LATEST = 1 / 4, 8.0  # C_mid from 1/4 of the first budget to 8 times the last
SLOWEST, STEEPEST = 0.25, 8.0  # B
PASSES = 3  # fits, each with the weights of the one before
EDGE = 1e-9
LEAST_EVALUATIONS = 4  # after step 0; the curve has three parameters
LEAST_IN_HALF = 3
TAIL = 0.025  # beyond each end of an interval
NAN = float("nan")
PARAMETERS = ("A", "B", "C_mid", "at_twice")


@dataclass(frozen=True)
class Saturation:
    """Parameters of a curve, scalars; or of several, (replicates,) each."""

    base: np.ndarray  # R0
    asymptote: np.ndarray  # A
    midpoint: np.ndarray  # C_mid
    exponent: np.ndarray  # B

    def at(self, budget: np.ndarray) -> np.ndarray:
        """Return R at budgets (n,) above 0 → (…, n)."""
        parts = (self.base, self.asymptote, self.midpoint, self.exponent)
        base, asymptote, midpoint, exponent = (np.asarray(part)[..., None] for part in parts)
        return base + (asymptote - base) * gain(budget, midpoint, exponent)


def gain(budget: np.ndarray, midpoint: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """Return the share of A - R0 that is reached at a budget, in (0, 1)."""
    return 1 / (1 + np.exp(exponent * (np.log(midpoint) - np.log(budget))))


def grid(budget: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of C_mid and of B, ascending, for budgets (evaluations,)."""
    midpoints = np.geomspace(EARLIEST * budget[0], LATEST * budget[-1], MIDPOINTS)
    return midpoints, np.geomspace(SLOWEST, STEEPEST, EXPONENTS)


def fit(
    budget: np.ndarray, base: np.ndarray, scores: np.ndarray, weights: np.ndarray
) -> Saturation:
    """Return the least-squares curves of replicates, with A between R0 and 1.

    budget (evaluations,) above 0 and ascending, base (replicates,), scores (replicates,
    evaluations), weights (evaluations,). The best point of the grid is refined once, on a finer
    grid between its neighbours.
    """
    midpoints, exponents = grid(budget)
    midpoint, exponent = np.repeat(midpoints, EXPONENTS)[None], np.tile(exponents, MIDPOINTS)[None]
    fine = np.linspace(-1, 1, 2 * FINER + 1)
    ratios = midpoints[1] / midpoints[0], exponents[1] / exponents[0]
    steps = [
        ratio ** offsets.ravel()
        for ratio, offsets in zip(ratios, np.meshgrid(fine, fine), strict=True)
    ]
    for refined in (False, True):
        if refined:
            midpoint = np.clip(midpoint * steps[0], midpoints[0], midpoints[-1])
            exponent = np.clip(exponent * steps[1], exponents[0], exponents[-1])
        shares = gain(budget, midpoint[..., None], exponent[..., None])
        squares = shares**2 @ weights
        products = (shares @ ((scores - base[:, None]) * weights)[..., None])[..., 0]
        gains = np.clip(products / squares, 0.0, (1 - base)[:, None])  # A - R0 at every point
        loss = gains * (gains * squares - 2 * products)
        best = loss.argmin(axis=1)[:, None]
        midpoint, exponent = (
            np.take_along_axis(np.broadcast_to(values, gains.shape), best, axis=1)
            for values in (midpoint, exponent)
        )
    asymptote = base + np.take_along_axis(gains, best, axis=1)[:, 0]
    return Saturation(base, asymptote, midpoint[:, 0], exponent[:, 0])


def fit_weighted(
    budget: np.ndarray, base: float, scores: np.ndarray, least: float
) -> tuple[Saturation, np.ndarray]:
    """Return the curve of scores (evaluations,) and its binomial weights, iterated from equal ones.

    `least`: the least probability that a weight takes for possible, and 1 minus the greatest.
    """
    weights = np.ones_like(scores)
    for _ in range(PASSES):
        found = fit(budget, np.array([base]), scores[None], weights)
        curve = Saturation(*(np.asarray(part[0]) for part in vars(found).values()))
        expected = np.clip(curve.at(budget), least, 1 - least)
        weights = 1 / (expected * (1 - expected))
    return curve, weights


def at_an_end(curve: Saturation, budget: np.ndarray) -> np.ndarray:
    """Return where A is not identified, (replicates,).

    The best fit then lies at an end beyond which A would grow further: A = 1, the latest C_mid or
    the slowest B.
    """
    midpoints, exponents = grid(budget)
    return (
        (curve.asymptote >= 1 - EDGE)
        | (curve.midpoint >= midpoints[-1] * (1 - EDGE))
        | (curve.exponent <= exponents[0] * (1 + EDGE))
    )


# The bootstrap over seeds and problems.


def resampled_means(values: np.ndarray, replicates: int = REPLICATES) -> np.ndarray:
    """Return bootstrap replicates of the means over seeds and problems, (replicates, evaluations).

    values (seeds, evaluations, problems). Each replicate draws the seeds, and the problems, with
    replacement. The mean is moved by what the drawn problems, and the drawn seeds, deviate from it.
    With equally many seeds and problems, all groups have the same draws, so differences of
    replicates are paired.
    """
    seeds, _, problems = values.shape
    random = np.random.default_rng(0)
    by_seed, by_problem = values.mean(axis=2), values.mean(axis=0).T
    mean = by_seed.mean(axis=0)
    moved = _deviations(random, problems, replicates) @ (by_problem - mean)
    of_seeds = _deviations(random, seeds, replicates) @ (by_seed - mean)
    return mean + moved + _seed_stretch(values) * of_seeds


def _deviations(random: np.random.Generator, count: int, replicates: int) -> np.ndarray:
    """Return the weights of `count` units in each replicate, less 1 / count: their sum is 0.

    Stretched by √(n / (n - 1)), so that few units spread as their mean does.
    """
    drawn = random.multinomial(count, np.full(count, 1 / count), size=replicates)
    stretch = np.sqrt(count / (count - 1)) if count > 1 else 0.0
    return stretch * (drawn - 1) / count


def _seed_stretch(values: np.ndarray) -> float:
    """Return what few seeds' deviations are multiplied by, as in `analysis.intervals`.

    Noise that is drawn anew for each seed and problem shows in the problems' deviations already, so
    only the spread over seeds beyond it counts (pooled over evaluations). It has the t quantile of
    S - 1 degrees of freedom in place of the normal one.
    """
    seeds, evaluations, problems = values.shape
    if seeds < 2 or problems < 2:
        return 1.0
    by_seed = values.mean(axis=2, keepdims=True)
    residuals = values - by_seed - (values - by_seed).mean(axis=0)
    noise = (residuals**2).sum() / ((seeds - 1) * (problems - 1) * evaluations * problems)
    spread = by_seed.var(axis=0, ddof=1).mean()
    if spread <= noise:
        return 0.0
    quantile = (1 + LEVEL) / 2
    return float(np.sqrt(1 - noise / spread) * stdtrit(seeds - 1, quantile) / ndtri(quantile))


# Groups.


@dataclass(frozen=True)
class MeasuredCurve:
    """A group's evaluations in one metric over one budget; the first is the base's, at 0.

    spent (seeds, evaluations), values (seeds, evaluations, problems); problems are those with a
    value at every evaluation of every seed.
    """

    label: str
    axis: str
    metric: str
    seeds: tuple[int | None, ...]
    problems: tuple[str, ...]
    spent: np.ndarray
    values: np.ndarray

    @property
    def budget(self) -> np.ndarray:
        """What the seeds of the curve had spent, mean, (evaluations,)."""
        return self.spent.mean(axis=0)

    @property
    def scores(self) -> np.ndarray:
        """The means over seeds and problems, (evaluations,)."""
        return self.values.mean(axis=(0, 2))

    @property
    def least(self) -> float:
        """The least probability that the weights of a fit take for possible."""
        return 1 / (2 * len(self.seeds) * len(self.problems))

    def restricted(self, other: MeasuredCurve) -> MeasuredCurve:
        """Return the curve on the seeds and problems that `other` has too."""
        seeds = [i for i, seed in enumerate(self.seeds) if seed in other.seeds]
        problems = [i for i, problem in enumerate(self.problems) if problem in set(other.problems)]
        if (len(seeds), len(problems)) == (len(self.seeds), len(self.problems)):
            return self
        return replace(
            self,
            seeds=tuple(self.seeds[i] for i in seeds),
            problems=tuple(self.problems[i] for i in problems),
            spent=self.spent[seeds],
            values=self.values[seeds][:, :, problems],
        )


def measured_curve(
    group: Group, axis: str, metric: str, ks: tuple[int, ...]
) -> MeasuredCurve | None:
    """Return a group's curve; None without training, base, recorded budget or metric."""
    runs = [run for run in group.complete if metric in scores_by_step(run, ks)]
    steps = sorted(set.intersection(*(set(run.evaluated_steps) for run in runs))) if runs else []
    if len(steps) < 2 or steps[0] != 0:
        return None
    spent = np.array([[spend_at_step(run, step, axis) for step in steps] for run in runs])
    budget = spent.mean(axis=0)
    if np.isnan(budget).any() or budget[-1] <= 0:
        return None
    # Of evaluations between which nothing was spent, the last one counts.
    kept = [i for i in range(len(steps)) if i + 1 == len(steps) or budget[i + 1] > budget[i]]
    grids = [scores_by_step(run, ks)[metric] for run in runs]
    evaluated = list(dict.fromkeys(step for grid in grids for step in grid.seeds))
    places = [evaluated.index(steps[i]) for i in kept]
    # contiguous: the layout decides the order of sums, and with it their last bits
    values, weights = (np.ascontiguousarray(part[:, places]) for part in align_grids(grids))
    defined = (weights > 0).all(axis=(0, 1))
    if not defined.any():
        return None
    names = np.array(sorted(set().union(*(grid.problems for grid in grids))), dtype=object)
    problems, seeds = tuple(names[defined]), tuple(run.seed for run in runs)
    curve = spent[:, kept], values[:, :, defined]
    return MeasuredCurve(group.label, axis, metric, seeds, problems, *curve)


@dataclass(frozen=True)
class CurveFit:
    """A fitted curve with its bootstrap replicates; without either where it was refused."""

    measured: MeasuredCurve
    curve: Saturation | None = None
    replicates: Saturation | None = None
    refused: str = ""

    def parameters(self) -> dict[str, tuple[float, np.ndarray]]:
        """Return the PARAMETERS that are identified, each with its replicates.

        Their intervals lie inside the grid. A's does, or the fit is refused.
        """
        if self.curve is None or self.replicates is None:
            return {}
        midpoints, exponents = grid(self.measured.budget[1:])
        ends = {"B": exponents[[0, -1]], "C_mid": midpoints[[0, -1]]}
        twice = 2 * self.measured.budget[-1:]
        values, replicates = (
            (curve.asymptote, curve.exponent, curve.midpoint, curve.at(twice)[..., 0])
            for curve in (self.curve, self.replicates)
        )
        return {
            name: (float(value), many)
            for name, value, many in zip(PARAMETERS, values, replicates, strict=True)
            if all(np.isclose(many, end).mean() <= TAIL for end in ends.get(name, ()))
        }


def curve_fits(groups: Sequence[Group], ks: Sequence[int]) -> list[CurveFit]:
    """Return the fits of each group, for each axis that it recorded, pass@1 and the greatest k."""
    return [
        fit_curve(measured)
        for axis in X_AXES
        for metric in dict.fromkeys(["pass@1", f"pass@{ks[-1]}"])
        for group in groups
        if (measured := measured_curve(group, axis, metric, tuple(ks))) is not None
    ]


def fit_curve(measured: MeasuredCurve) -> CurveFit:
    """Fit a group's curve and its replicates, or say why not."""
    budget, scores = measured.budget[1:], measured.scores
    if len(budget) < LEAST_EVALUATIONS:
        reason = f"{len(budget)} evaluations after step 0, of {LEAST_EVALUATIONS} that are needed"
        return CurveFit(measured, refused=reason)
    means = resampled_means(measured.values)
    errors = (means[:, None, :] - means[:, :, None]).std(axis=0)  # of differences of evaluations
    if reason := _not_a_rise(scores, errors):
        return CurveFit(measured, refused=reason)
    curve, weights = fit_weighted(budget, scores[0], scores[1:], measured.least)
    replicates = fit(budget, means[:, 0], means[:, 1:], weights)
    share, gained = at_an_end(replicates, budget).mean(), scores[-1] - scores[0]
    if share > TAIL:
        reason = f"A not identified: no bend in {share:.0%} of replicates"
        return CurveFit(measured, refused=reason)
    # An interval wider than the measured gain says less of A than the evaluations do themselves.
    low, high = np.quantile(replicates.asymptote, [TAIL, 1 - TAIL])
    if high - low > gained:
        wide = f"{low:.2f} to {high:.2f}, wider than the gain of {gained:.2f}"
        return CurveFit(measured, refused=f"A not identified: {wide}")
    return CurveFit(measured, curve, replicates)


def _not_a_rise(scores: np.ndarray, errors: np.ndarray) -> str:
    """Return why scores (evaluations,) are no rising curve, beyond noise; "" if they may be one.

    A fall between two evaluations is tested for all pairs (Bonferroni); the gain over the base by
    its 95 % interval. `errors` (evaluations, evaluations): standard errors of the differences.
    """
    first, second = np.triu_indices(len(scores), 1)
    allowed = ndtri(1 - TAIL * 2 / len(first)) * errors[first, second]
    falls = scores[second] - scores[first] + allowed
    if falls.min() < 0:
        worst = falls.argmin()
        fall = scores[first[worst]] - scores[second[worst]]
        return f"not monotone: evaluation {second[worst]} is {fall:.3f} below {first[worst]}"
    gained, noise = scores[-1] - scores[0], ndtri(1 - TAIL) * errors[0, -1]
    return "" if gained > noise else f"no gain over the base: {gained:+.3f} ± {noise:.3f}"


# Tables.


def fit_table(fits: Iterable[CurveFit]) -> pd.DataFrame:
    """Return curve_fits.csv, a row per axis, group and metric.

    - `budget`: what a seed had spent at the last evaluation, mean; `R0`: the base's score
    - `A`, `B`, `C_mid` with 95 % intervals. B and C_mid are NaN where theirs reach an end of the
      grid: between two evaluations a jump has no steepness.
    - `at_twice`: the score that the curve has at twice the budget
    - `second_half_rms`, `second_half_last`: predicted − measured, of a fit to the first half of the
      evaluations: root mean square over the second half, and at the last one
    - `refused`: why there is no fit; "" if there is one
    """
    columns = ["axis", "label", "metric", "seeds", "problems", "evaluations", "budget", "R0"]
    columns += [f"{name}{end}" for name in PARAMETERS for end in ("", "_low", "_high")]
    columns += ["second_half_rms", "second_half_last", "refused"]
    rows = []
    for one in fits:
        measured = one.measured
        row: dict[str, object] = dict.fromkeys(columns, NAN) | {
            "axis": measured.axis,
            "label": measured.label,
            "metric": measured.metric,
            "seeds": len(measured.seeds),
            "problems": len(measured.problems),
            "evaluations": len(measured.budget) - 1,
            "budget": float(measured.budget[-1]),
            "R0": float(measured.scores[0]),
            "refused": one.refused,
        }
        for name, (value, replicates) in one.parameters().items():
            low, high = np.quantile(replicates, [TAIL, 1 - TAIL])
            row |= {name: value, f"{name}_low": low, f"{name}_high": high}
        if one.curve is not None:
            row["second_half_rms"], row["second_half_last"] = second_half_error(measured)
        rows.append(row)
    return pd.DataFrame(rows, columns=columns)


def second_half_error(measured: MeasuredCurve) -> tuple[float, float]:
    """Return what a fit to the first half of the evaluations misses of the second: RMS, and last.

    NaN if the first half has fewer evaluations than the curve has parameters.
    """
    budget, scores = measured.budget[1:], measured.scores
    half = -(-len(budget) // 2)
    if half < LEAST_IN_HALF:
        return NAN, NAN
    curve, _ = fit_weighted(budget[:half], scores[0], scores[1 : half + 1], measured.least)
    error = curve.at(budget[half:]) - scores[half + 1 :]
    return float(np.sqrt(np.mean(error**2))), float(error[-1])


def fit_differences(fits: Sequence[CurveFit]) -> pd.DataFrame:
    """Return curve_fit_differences.csv: a row per axis, metric and pair of groups, a - b.

    Paired: both curves are on the seeds and problems of both, and every replicate draws the same
    for both. No interval with one seed; B's difference is NaN where one of them is not identified.
    Intervals are for single pairs.
    """
    columns = ["axis", "a", "b", "metric", "seeds", "problems"]
    columns += [f"{name}{end}" for name in ("A", "B") for end in ("_difference", "_low", "_high")]
    rows = []
    for a, b in combinations(fits, 2):
        if (a.measured.axis, a.measured.metric) != (b.measured.axis, b.measured.metric):
            continue
        sides = [_on(a, b), _on(b, a)]
        measured = sides[0].measured
        refused = [f"{one.measured.label}: {one.refused}" for one in sides if one.refused]
        row: dict[str, object] = dict.fromkeys(columns, NAN) | {
            "axis": measured.axis,
            "a": a.measured.label,
            "b": b.measured.label,
            "metric": measured.metric,
            "seeds": len(measured.seeds),
            "problems": len(measured.problems),
            "refused": "; ".join(refused),
        }
        fitted = [side.parameters() for side in sides]
        for name in ("A", "B"):
            if all(name in found for found in fitted):
                (value, many), (other, others) = (found[name] for found in fitted)
                row[f"{name}_difference"] = value - other
                if len(measured.seeds) > 1:
                    ends = np.quantile(many - others, [TAIL, 1 - TAIL])
                    row[f"{name}_low"], row[f"{name}_high"] = ends
        rows.append(row)
    return pd.DataFrame(rows, columns=[*columns, "refused"])


def _on(one: CurveFit, other: CurveFit) -> CurveFit:
    """Return a fit on the seeds and problems that both groups have; itself if that is all."""
    restricted = one.measured.restricted(other.measured)
    if one.refused or restricted is one.measured:
        return one
    if not restricted.seeds or not restricted.problems:
        return CurveFit(restricted, refused="no seed or no problem in common")
    return fit_curve(restricted)
