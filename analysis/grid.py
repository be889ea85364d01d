"""Scores as arrays: seeds × problems for each metric, and two groups' on what they share."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.intervals import Terms, terms


@dataclass(frozen=True)
class Grid:
    """One metric of a group: values and weights (seeds, problems), the weight 0 where not defined.

    `problems` are sorted.
    """

    seeds: tuple[Hashable, ...]
    problems: tuple[str, ...]
    values: np.ndarray
    weights: np.ndarray

    def measured(self) -> np.ndarray:
        """The values, NaN where not defined."""
        return np.where(self.weights > 0, self.values, np.nan)

    def terms(self) -> Terms:
        return terms(self.values, self.weights)


@dataclass(frozen=True)
class Row:
    """One metric of one run: values and weights (problems,); `problems` are sorted."""

    problems: np.ndarray
    values: np.ndarray
    weights: np.ndarray


def stacked(seeds: Sequence[Any], parts: Sequence[Mapping[str, Row]]) -> dict[str, Grid]:
    """Metric → its `Grid`, from the rows of each seed, the weight 0 where a seed has none."""
    rows = [row for part in parts for row in part.values()]
    problems = np.unique(np.concatenate([row.problems for row in rows])) if rows else np.array([])
    metrics = sorted(set().union(*parts))
    both = np.zeros((len(metrics), 2, len(parts), len(problems)))
    for grid, metric in zip(both, metrics, strict=True):
        for place, part in enumerate(parts):
            if (row := part.get(metric)) is not None:
                grid[:, place, np.searchsorted(problems, row.problems)] = row.values, row.weights
    return {
        metric: Grid(tuple(seeds), tuple(problems), *grid)
        for metric, grid in zip(metrics, both, strict=True)
    }


def grids(seeds: Sequence[Any], frames: Sequence[pd.DataFrame]) -> dict[str, Grid]:
    """Metric → its `Grid`, from one frame of per-problem scores (`analysis.metrics`) a seed."""
    if not frames:
        return {}
    whole = pd.concat(frames)
    rows = np.repeat(np.arange(len(frames)), [len(frame) for frame in frames])
    columns, problems = pd.factorize(whole["problem"], sort=True)
    kinds, metrics = pd.factorize(whole["metric"], sort=True)
    both = np.zeros((len(metrics), 2, len(frames), len(problems)))
    both[kinds, :, rows, columns] = whole[["value", "weight"]].to_numpy(float)
    return {
        metric: Grid(tuple(seeds), tuple(problems), *part)
        for metric, part in zip(metrics, both, strict=True)
    }


def shared(a: Grid, b: Grid) -> tuple[Grid, Grid]:
    """Both on the seeds and problems of both; the weight 0 where either is not defined."""
    seeds = tuple(seed for seed in a.seeds if seed in b.seeds)
    if a.problems == b.problems:
        problems = a.problems
    else:
        problems = tuple(sorted(set(a.problems) & set(b.problems)))
    parts = [_on(grid, seeds, problems) for grid in (a, b)]
    both = (parts[0].weights > 0) & (parts[1].weights > 0)
    first, second = (
        Grid(seeds, problems, part.values, np.where(both, part.weights, 0.0)) for part in parts
    )
    return first, second


def _on(grid: Grid, seeds: tuple[Hashable, ...], problems: tuple[str, ...]) -> Grid:
    if grid.seeds == seeds and grid.problems == problems:
        return grid
    rows = [grid.seeds.index(seed) for seed in seeds]
    place = {problem: column for column, problem in enumerate(grid.problems)}
    at = np.ix_(rows, [place[problem] for problem in problems])
    return Grid(seeds, problems, grid.values[at], grid.weights[at])
