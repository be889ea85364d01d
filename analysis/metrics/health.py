"""What went wrong or odd in a run's training, as numbers with a bound beside each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.load.groups import Group
from analysis.load.run_folders import Run
from analysis.metrics.definitions import DISTINCT, DRAWN
from analysis.metrics.scores import at_step

WINDOW = 10  # steps of a mean


@dataclass(frozen=True)
class Check:
    """One number of a run; beyond `bound` (above it, or below where `least`) it is flagged."""

    name: str
    title: str
    meaning: str
    bound: float
    least: bool = False

    def flagged(self, value: float) -> bool:
        return value < self.bound if self.least else value > self.bound


CHECKS = (
    Check("nan_steps", "steps with NaN", "Steps whose loss or gradient norm is no number.", 0),
    Check(
        "reward_kept",
        "reward kept",
        f"Mean reward of the last {WINDOW} steps over the best {WINDOW} steps in a row: far below "
        "1 the training fell back.",
        0.5,
        least=True,
    ),
    Check(
        DISTINCT,
        f"distinct of {DRAWN} at the end",
        f"How many different programs there are among {DRAWN} right ones; {1 / DRAWN:g} is the "
        "least: always the same program (collapse).",
        1.25 / DRAWN,
        least=True,
    ),
    Check(
        "entropy_kept",
        "entropy kept",
        f"Entropy of the model's next tokens, mean of the last {WINDOW} steps over that of the "
        "first: near 0 the model has stopped trying anything else.",
        0.05,
        least=True,
    ),
    Check(
        "infra_errors",
        "judge failures",
        "Evaluation and training programs on which the judge itself failed; they count nowhere.",
        0,
    ),
    Check(
        "truncated",
        "truncated at the end",
        "Share of the last evaluation's responses that were cut at the length limit.",
        0.1,
    ),
    Check(
        "mismatch",
        "log-prob mismatch, × bound",
        "Greatest mean difference between the log-probs of what writes responses and of what "
        "learns from them, as a multiple of the run's own bound (engine.check_bound).",
        1.0,
    ),
)


def health(groups: Sequence[Group], ks: Sequence[int]) -> pd.DataFrame:
    """health.csv: a row for each run with group, seed and CHECKS, NaN where not recorded."""
    rows = [
        {"run": run.name, "group": group.label, "seed": run.seed, **checks(run, tuple(ks))}
        for group in groups
        for run in group.runs
    ]
    return pd.DataFrame(rows)


def checks(run: Run, ks: tuple[int, ...]) -> dict[str, float]:
    """CHECKS of one run."""
    last = run.evaluation(run.evaluated_steps[-1]) if run.evaluated_steps else run.evals
    found = dict.fromkeys((check.name for check in CHECKS), math.nan)
    if (known := [c for c in ("loss", "grad_norm") if c in run.metrics]) and len(run.metrics):
        found["nan_steps"] = float(run.metrics[known].astype(float).isna().any(axis=1).sum())
    found["reward_kept"] = _kept(_numbers(run, "reward_mean"))
    entropy = _numbers(run, "entropy")
    if len(entropy) >= 2 * WINDOW and entropy.iloc[:WINDOW].mean() > 0:
        found["entropy_kept"] = float(entropy.tail(WINDOW).mean() / entropy.iloc[:WINDOW].mean())
    found["infra_errors"] = float((run.evals["verdict"] == "INFRA_ERROR").sum())
    judge = _numbers(run, "budget/infra_errors")
    found["infra_errors"] += float(judge.iloc[-1]) if len(judge) else 0.0
    if not len(last):
        return found
    if run.evaluated_steps[-1] > 0:
        at_end = at_step(run, run.evaluated_steps[-1], ks).get(DISTINCT)
        found[DISTINCT] = float(at_end.values.mean()) if at_end else math.nan
    if "truncated" in last:
        found["truncated"] = float(last["truncated"].astype(float).mean())
    over = _numbers(run, "mismatch/mean") / _numbers(run, "mismatch/bound")
    found["mismatch"] = float(over.max()) if len(over) else math.nan
    return found


def _numbers(run: Run, column: str) -> pd.Series:
    """The measured values of a column of the run's metrics; empty where there are none."""
    if column not in run.metrics:
        return pd.Series(dtype=float)
    return run.metrics[column].astype(float).dropna()


def _kept(reward: pd.Series) -> float:
    if len(reward) < 2 * WINDOW:
        return math.nan
    smooth = reward.rolling(WINDOW).mean().dropna()
    return float(smooth.iloc[-1] / smooth.max()) if smooth.max() > 0 else math.nan
