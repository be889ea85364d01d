"""A run's evaluations as one number: the area under its learning curve.

The last evaluation alone rewards a run that is good at one moment of one metric. The area also
counts how early a run gets there, and averages the noise of several evaluations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.load.run_folders import Run
from analysis.metrics.scores import scores_by_step

KS = (1, 10)  # of pass@k: what one answer is worth, and what ten different ones are


def area_under_curve(steps: Sequence[float], values: Sequence[float]) -> float:
    """Return the trapezoidal area over ascending steps, divided by their span.

    It is a mean of the values over training, so it lies between the least and the greatest. NaN if
    a value is missing. Raises ValueError without two steps.
    """
    if len(steps) < 2 or np.any(np.diff(steps) <= 0):
        raise ValueError(f"an area needs two evaluations or more, in ascending steps, not {steps}")
    return float(np.trapezoid(values, steps) / (steps[-1] - steps[0]))


def mean_pass_at(run: Run, ks: tuple[int, ...] = KS) -> dict[int, float]:
    """Return step → mean of pass@k over `ks`, each the mean over the problems; NaN if undefined."""
    grids = scores_by_step(run, ks)
    rows = [grids.get(f"pass@{k}") for k in ks]
    means = {}
    for i, step in enumerate(run.evaluated_steps):
        defined = [grid.row(i) for grid in rows if grid is not None and grid.weights[i].any()]
        whole = len(defined) == len(ks)
        means[step] = float(np.mean([row.mean() for row in defined])) if whole else float("nan")
    return means


def curve_score(run: Run) -> float:
    """Return the area under (pass@1 + pass@10)/2 over the run's training steps, in [0, 1].

    pass@k is the unbiased estimate from the run's samples, so each problem needs ten or more.
    NaN unless the curve goes from the base model, at step 0, to the run's last step: the area under
    a part of it is no comparable number.
    """
    means = mean_pass_at(run)
    if len(means) < 2 or min(means) != 0 or max(means) != run.config["steps"]:
        return float("nan")
    return area_under_curve(list(means), list(means.values()))
