"""Checks of a run's training: numbers, flagged beyond a bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.load.groups import Group
from analysis.load.run_folders import Run
from analysis.metrics.definitions import DISTINCT, DRAWN
from analysis.metrics.scores import scores_at_step

WINDOW = 10  # steps averaged


@dataclass(frozen=True)
class Check:
    """One number of a run, flagged above `bound`, or below it if `flag_below`."""

    name: str
    title: str
    meaning: str
    bound: float
    flag_below: bool = False

    def flagged(self, value: float) -> bool:
        return value < self.bound if self.flag_below else value > self.bound


CHECKS = (
    Check("nan_steps", "steps with NaN", "Steps with a NaN loss or gradient norm.", 0),
    Check(
        "reward_kept",
        "reward kept",
        f"Mean reward of the last {WINDOW} steps over that of the best {WINDOW} consecutive steps. "
        "Far below 1, training has regressed.",
        0.5,
        flag_below=True,
    ),
    Check(
        DISTINCT,
        f"distinct of {DRAWN} at the end",
        f"Share of distinct programs among {DRAWN} accepted ones. The minimum, {1 / DRAWN:g}, "
        "means always the same program (collapse).",
        1.25 / DRAWN,
        flag_below=True,
    ),
    Check(
        "entropy_kept",
        "entropy kept",
        f"Entropy of the next-token distribution, mean of the last {WINDOW} steps over that of "
        f"the first {WINDOW}. Near 0, the model has stopped exploring.",
        0.05,
        flag_below=True,
    ),
    Check(
        "infra_errors",
        "judge failures",
        "Evaluation and training programs on which the judge itself failed; they are excluded.",
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
        "Greatest mean difference between the engine's and the learner's log-probs, as a multiple "
        "of the run's own bound (engine.logprob_check_bound).",
        1.0,
    ),
)


def health(groups: Sequence[Group], ks: Sequence[int]) -> pd.DataFrame:
    """Return health.csv: a row per run with group, seed and CHECKS, NaN where not recorded."""
    rows = [
        {"run": run.name, "group": group.label, "seed": run.seed, **run_checks(run, tuple(ks))}
        for group in groups
        for run in group.runs
    ]
    return pd.DataFrame(rows)


def run_checks(run: Run, ks: tuple[int, ...]) -> dict[str, float]:
    """Return the values of CHECKS for one run."""
    last = run.evaluation(run.evaluated_steps[-1]) if run.evaluated_steps else run.evals
    values = dict.fromkeys((check.name for check in CHECKS), math.nan)
    columns = [column for column in ("loss", "grad_norm") if column in run.metrics]
    if columns and len(run.metrics):
        values["nan_steps"] = float(run.metrics[columns].astype(float).isna().any(axis=1).sum())
    values["reward_kept"] = _reward_kept(_recorded(run, "reward_mean"))
    entropy = _recorded(run, "entropy")
    if len(entropy) >= 2 * WINDOW and entropy.iloc[:WINDOW].mean() > 0:
        values["entropy_kept"] = float(entropy.tail(WINDOW).mean() / entropy.iloc[:WINDOW].mean())
    values["infra_errors"] = float((run.evals["verdict"] == "INFRA_ERROR").sum())
    judge_failures = _recorded(run, "budget/infra_errors")
    values["infra_errors"] += float(judge_failures.iloc[-1]) if len(judge_failures) else 0.0
    if not len(last):
        return values
    if run.evaluated_steps[-1] > 0:
        at_end = scores_at_step(run, run.evaluated_steps[-1], ks).get(DISTINCT)
        values[DISTINCT] = float(at_end.values.mean()) if at_end else math.nan
    if "truncated" in last:
        values["truncated"] = float(last["truncated"].astype(float).mean())
    ratio = _recorded(run, "mismatch/mean") / _recorded(run, "mismatch/bound")
    values["mismatch"] = float(ratio.max()) if len(ratio) else math.nan
    return values


def _recorded(run: Run, column: str) -> pd.Series:
    """Return the recorded values of a column of the run's metrics, possibly none."""
    if column not in run.metrics:
        return pd.Series(dtype=float)
    return run.metrics[column].astype(float).dropna()


def _reward_kept(reward: pd.Series) -> float:
    if len(reward) < 2 * WINDOW:
        return math.nan
    smooth = reward.rolling(WINDOW).mean().dropna()
    return float(smooth.iloc[-1] / smooth.max()) if smooth.max() > 0 else math.nan
