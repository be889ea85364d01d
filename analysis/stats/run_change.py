"""What one run changed: pass@k and single problems before and after training.

Both evaluations have the same problems, so their difficulty cancels. What is left in the change is
the noise of the samples, for which there is an interval. It says nothing on other seeds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.load.run_folders import Run
from analysis.metrics.scores import counts_at_step, pass_values
from analysis.stats.intervals import LEVEL, interval
from analysis.stats.power import sampling_variance


def problem_changes(run: Run, before: int, after: int) -> pd.DataFrame:
    """Return a row per problem of both evaluations, by name: n_before, c_before, n_after, c_after.

    n are judged samples, c accepted ones.
    """
    first = counts_at_step(run, before).add_suffix("_before")
    both = first.join(counts_at_step(run, after).add_suffix("_after"), how="inner")
    return both[["n_before", "c_before", "n_after", "c_after"]].sort_index()


def pass_changes(changes: pd.DataFrame, ks: Sequence[int]) -> pd.DataFrame:
    """Return a row per k: k, problems, before, after, change, and two 95 % intervals of the change.

    `changes` are those of `problem_changes`. sampling_low and _high hold for these problems and new
    samples; low and high for other problems of the kind, too. A k counts the problems with at least
    k samples in both evaluations, and has no row without one.
    """
    rows = []
    for k in ks:
        enough = changes[(changes["n_before"] >= k) & (changes["n_after"] >= k)]
        if not len(enough):
            continue
        n_before, c_before, n_after, c_after = (enough[name].to_numpy() for name in enough)
        before, after = pass_values(n_before, c_before, k), pass_values(n_after, c_after, k)
        half = _sampling_half_width(n_before, c_before, k, n_after, c_after)
        overall = interval(after - before, bounds=(-1.0, 1.0))
        rows.append(
            {
                "k": k,
                "problems": len(enough),
                "before": before.mean(),
                "after": after.mean(),
                "change": overall.mean,
                "sampling_low": overall.mean - half,
                "sampling_high": overall.mean + half,
                "low": overall.low,
                "high": overall.high,
            }
        )
    return pd.DataFrame(rows)


def _sampling_half_width(
    n_before: np.ndarray, c_before: np.ndarray, k: int, n_after: np.ndarray, c_after: np.ndarray
) -> float:
    """Return the half-width of the change's interval from samples alone; NaN with one sample."""
    from scipy.special import ndtri

    variances = sampling_variance(c_before, n_before, k) + sampling_variance(c_after, n_after, k)
    return float(ndtri((1 + LEVEL) / 2) * np.sqrt(variances.sum()) / len(variances))


def gained_and_lost(changes: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of problems that only the trained model solved, and that only the base did.

    Solved: at least one sample was accepted. The most accepted samples come first.
    """
    solved_before, solved_after = changes["c_before"] > 0, changes["c_after"] > 0
    gained, lost = changes[~solved_before & solved_after], changes[solved_before & ~solved_after]
    return (
        gained.sort_values("c_after", ascending=False, kind="stable"),
        lost.sort_values("c_before", ascending=False, kind="stable"),
    )
