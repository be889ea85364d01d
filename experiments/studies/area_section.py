"""The page's section on the score of the protocol: the area under each arm's learning curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from analysis.budgets import curve_score
from analysis.markdown import table
from analysis.runs import Run, RunError

TEXT = """\
The score that decides between trials and between designs ([protocol](../reference/protocol.md)):
the area under (pass@1 + pass@10)/2 over the run's steps. Mean over seeds, its standard error, and
the score of each seed."""


def area_section(
    load: Callable[[str], Run],
    runs: Sequence[Mapping[str, Any]],
    arms: Sequence[str],
    seeds: Sequence[int],
) -> list[str]:
    """The section, arms in descending order of their means; [] if no run has such a score.

    `load` returns a run by the name of its folder, or raises RunError. `runs`: of arms.json.
    """
    scores = area_scores(load, runs)
    rows = []
    for arm in arms:
        by_seed = [scores.get((arm, seed), nan) for seed in seeds]
        known = [score for score in by_seed if not isnan(score)]
        if known:
            mean, error = fmean(known), stdev(known) / len(known) ** 0.5 if len(known) > 1 else nan
            rows.append([arm, *map(_text, (mean, error, *by_seed))])
    if not rows:
        return []
    rows.sort(key=lambda cells: cells[1], reverse=True)
    head = ["arm", "mean", "standard error", *(f"seed {seed}" for seed in seeds)]
    text = " ".join(TEXT.split())
    return [f"### Area under the learning curve\n\n{text}\n\n{table(head, rows)}"]


def area_scores(
    load: Callable[[str], Run], runs: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, int], float]:
    """Return (arm, seed) → score of each finished run that is no trial, NaN without one."""
    return {
        (run["arm"], run["seed"]): _score(load, Path(run["run"]).name)
        for run in runs
        if run["status"] == "finished" and not run["trial"]
    }


def _score(load: Callable[[str], Run], name: str) -> float:
    """NaN if the run was not evaluated between its start and its end, or not with ten samples."""
    try:
        run = load(name)
        return curve_score(run) if len(run.evaluated_steps) > 2 else nan
    except (RunError, ValueError):
        return nan


def _text(score: float) -> str:
    return "–" if isnan(score) else f"{score:.3f}"
