"""The front, pass@k at equal pass@1 along training; and the crossing, pass@k of a base over k.

Which arm has more solutions left where both solve as much at the first try? For a seed and two arms
A and B: A's score at each of its evaluations, less B's where B's curve first passes the same
pass@1, linear between B's evaluations; likewise with A and B exchanged. The difference A - B is the
mean over both directions. It counts evaluations in the range of pass@1 that both runs reach, above
the base model's. Outside it nothing is extrapolated: a pair without any such evaluation, or without
two seeds that have one, has no difference.

Seeds and problems are paired, so that the interval is that of `analysis.intervals`, with the
difference's own spread over seeds. Equal pass@1 is not equal compute: `thresholds.csv` says what an
arm spends to get there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from analysis.comparisons import PairedDifference, holm_corrected
from analysis.groups import EvaluatedModel
from analysis.intervals import TIE, Interval, estimate, interval, seed_means
from analysis.metrics import (
    AT_EQUAL,
    DISTINCT_ACCEPTED,
    ProblemScores,
    align_grids,
    counts_at_step,
    pass_scores,
    scores_by_step,
    stack_seeds,
)
from analysis.pass_at_k import curve_ks
from analysis.runs import Run, memoize

LEAST_SEEDS = 2
LEAST_STEPS = 5  # evaluated ones after the base; between fewer a straight line says too much


def front_metrics(ks: Sequence[int]) -> list[str]:
    """Return the metrics that are compared at equal pass@1, for the greatest k."""
    return [f"pass@{ks[-1]}", f"{DISTINCT_ACCEPTED}{ks[-1]}"] if ks[-1] > 1 else []


def front_differences(
    models: Sequence[EvaluatedModel], ks: Sequence[int]
) -> list[PairedDifference]:
    """Return every two models once for each of `front_metrics`, p-values by Holm's correction."""
    found: list[PairedDifference] = []
    for metric in front_metrics(ks):
        pairs = (_difference(a, b, metric, tuple(ks)) for a, b in combinations(models, 2))
        found += holm_corrected([pair for pair in pairs if pair is not None])
    return found


def _difference(
    a: EvaluatedModel, b: EvaluatedModel, metric: str, ks: tuple[int, ...]
) -> PairedDifference | None:
    runs = {run.seed: run for run in b.runs}
    by_seed: dict[int | None, dict[str, ProblemScores]] = {}
    for run in a.runs:
        if run.seed in runs and (gap := at_equal(run, runs[run.seed], metric, ks)) is not None:
            by_seed[run.seed] = {metric: gap}
    if len(by_seed) < LEAST_SEEDS:
        return None
    grid = stack_seeds(list(by_seed), list(by_seed.values()))[metric]
    found = estimate(seed_means(grid.values, grid.weights))
    mean, half = float(found.mean), float(found.half_width())
    improved = np.nanmean(np.sign(grid.measured()))
    return PairedDifference(
        a=a.label,
        b=b.label,
        metric=f"{metric}{AT_EQUAL}",
        difference=Interval(mean, mean - half, mean + half),
        improvement=float((1 + improved) / 2),
        seeds=len(by_seed),
        problems=len(grid.problems),
        estimate=found,
    )


def at_equal(one: Run, other: Run, metric: str, ks: tuple[int, ...]) -> ProblemScores | None:
    """Return one - other at equal pass@1, by problem; None if they share no range of pass@1."""
    there, back = _on_curve(one, other, metric, ks), _on_curve(other, one, metric, ks)
    gaps = [gap for gap in (there, None if back is None else -back) if gap is not None]
    if not gaps:
        return None
    gap = np.mean(gaps, axis=0)
    defined = ~np.isnan(gap)
    problems = np.array(scores_by_step(one, ks)[metric].problems, object)[defined]
    return ProblemScores(problems, gap[defined], np.ones(defined.sum())) if len(problems) else None


def _on_curve(one: Run, other: Run, metric: str, ks: tuple[int, ...]) -> np.ndarray | None:
    """Return the mean of one's evaluations less `other` at the same pass@1 → (problems,)."""
    (x, scores, names), (curve, others, of_others) = (_curve(r, metric, ks) for r in (one, other))
    if min(len(x), len(curve)) <= LEAST_STEPS or names != of_others:
        return None
    gaps = []
    for value, score in zip(x[1:], scores[1:], strict=True):
        passed = int(np.argmax(curve >= value))
        if value <= max(x[0], curve[0]) or curve[passed] < value:
            continue
        share = (value - curve[passed - 1]) / (curve[passed] - curve[passed - 1])
        gaps.append(score - (1 - share) * others[passed - 1] - share * others[passed])
    return np.mean(gaps, axis=0) if gaps else None


@memoize
def _curve(
    run: Run, metric: str, ks: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return mean pass@1 (steps,), the metric (steps, problems), NaN where undefined, and names."""
    grids = scores_by_step(run, ks)
    if metric not in grids or "pass@1" not in grids:
        return np.empty(0), np.empty((0, 0)), ()
    # equal shares of samples, added in another order, are equal
    pass_at_1 = np.nanmean(grids["pass@1"].measured(), axis=1).round(12)
    return pass_at_1, grids[metric].measured(), grids[metric].problems


# The crossing: the number of tries from which the base solves as much as the trained model.
#
# Training may only make likelier what the base already solves (arXiv 2504.13837): it is ahead at
# few tries, and the base catches up at many. The crossing is the k from which the mean of trained
# - base pass@k is never above 0 again, linear in log k between the ks; infinite if it is above 0
# at the greatest k, beyond which nothing is extrapolated. The base is what the same runs were
# before training, so that seeds and problems are paired.
#
# The ends are the crossings of the two ends of the difference's own 95 % interval
# (`analysis.intervals`): from `low` on the trained model is no longer significantly above, from
# `high` on it is significantly below, at each k by itself.


def crossing_table(models: Iterable[EvaluatedModel]) -> pd.DataFrame:
    """Return crossing.csv: label, seeds, most (the greatest k), crossing, _low and _high.

    A model has no row if one of its runs was not evaluated before training.
    """
    rows = []
    for model in models:
        if model.is_base or any(0 not in run.evaluated_steps for run in model.runs):
            continue
        ks = curve_ks(max(model.sample_counts))
        before = [pass_scores(counts_at_step(run, 0), ks) for run in model.runs]
        after = [pass_scores(counts, ks) for counts in model.counts]
        base, trained = (stack_seeds(model.seeds, scores) for scores in (before, after))
        gaps = {}
        for k in ks:
            values, weights = align_grids([grids.get(f"pass@{k}") for grids in (trained, base)])
            if (both := weights.min(axis=0)).any():  # not, if the judge failed on samples
                gaps[k] = interval(values[0] - values[1], both)
        if gaps:
            tries, ends = np.array([*gaps]), zip(*gaps.values(), strict=True)
            crossings = (crossing(tries, np.array(end)) for end in ends)
            rows.append((model.label, len(model.runs), max(gaps), *crossings))
    columns = ["label", "seeds", "most", "crossing", "crossing_low", "crossing_high"]
    return pd.DataFrame(rows, columns=columns)


def crossing(ks: np.ndarray, gaps: np.ndarray) -> float:
    """Return the k from which gaps (ks,) are at most 0; NaN if one is unknown."""
    above = np.flatnonzero(gaps > TIE)
    if np.isnan(gaps).any():
        return math.nan
    last = above[-1] if len(above) else -1
    if last < 0 or last + 1 == len(ks):
        return math.inf if len(above) else float(ks[0])
    share = gaps[last] / (gaps[last] - gaps[last + 1])
    return float(ks[last] * (ks[last + 1] / ks[last]) ** share)


def crossing_statement(table: pd.DataFrame, named: int) -> list[str]:
    """Say where the base passes the first `named` models; [] if nothing was compared."""
    if table.empty:
        return []

    def tries(k: float, beyond: str) -> str:
        return beyond if math.isinf(k) else f"{k:.0f}"

    said = []
    for row in table.head(named).to_dict("records"):
        most, low, high = row["most"], row["crossing_low"], row["crossing_high"]
        text = f"{row['label']} {tries(row['crossing'], f'none up to {most}')}"
        if not math.isnan(low) and not math.isinf(low):
            text += f" [{tries(low, '')}, {tries(high, f'beyond {most}')}]"
        said.append(text)
    return [
        "The k from which the base solves at least as much as the trained model, and in brackets "
        f"between which ks their difference is not significant: {'; '.join(said)}."
    ]
