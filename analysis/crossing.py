"""The crossing: the number of tries from which the base solves as much as the trained model.

Training may only make likelier what the base already solves (arXiv 2504.13837): it is ahead at few
tries, and the base catches up at many. The crossing is the k from which the mean of trained - base
pass@k is never above 0 again, linear in log k between the ks; infinite if it is above 0 at the
greatest k, beyond which nothing is extrapolated. The base is what the same runs were before
training, so that seeds and problems are paired.

The ends are the crossings of the two ends of the difference's own 95 % interval (`analysis.
intervals`): from `low` on the trained model is no longer significantly above, from `high` on it is
significantly below, at each k by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis.groups import EvaluatedModel
from analysis.intervals import TIE, interval
from analysis.metrics import align_grids, counts_at_step, pass_scores, stack_seeds
from analysis.pass_at_k import curve_ks


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
