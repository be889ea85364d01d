"""Scores as arrays: seeds × problems for each metric, and several groups' side by side."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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

    def row(self, place: int) -> Row:
        """Of one seed, by its place: the problems on which the metric is defined."""
        defined = self.weights[place] > 0
        problems = np.array(self.problems, dtype=object)[defined]
        return Row(problems, self.values[place][defined], self.weights[place][defined])

    def on(self, problems: Collection[str]) -> Grid:
        """The same on those of its problems that are among these."""
        kept = [column for column, problem in enumerate(self.problems) if problem in problems]
        names = tuple(self.problems[column] for column in kept)
        return Grid(self.seeds, names, self.values[:, kept], self.weights[:, kept])


@dataclass(frozen=True)
class Row:
    """One metric of one run: values and weights (problems,); `problems` are sorted."""

    problems: np.ndarray
    values: np.ndarray
    weights: np.ndarray

    def mean(self) -> float:
        """The weighted mean over the problems."""
        return float(np.average(self.values, weights=self.weights))


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


def together(grids: Sequence[Grid | None]) -> tuple[np.ndarray, np.ndarray]:
    """Values and weights (grids, seeds, problems) on the seeds and problems of any of them.

    The weight is 0 where a grid has no such seed or problem; all of a None is 0.
    """
    given = [grid for grid in grids if grid is not None]
    seeds = list(dict.fromkeys(seed for grid in given for seed in grid.seeds))
    problems = sorted(set().union(*(grid.problems for grid in given)))
    place = {problem: column for column, problem in enumerate(problems)}
    both = np.zeros((2, len(grids), len(seeds), len(problems)))
    for number, grid in enumerate(grids):
        if grid is not None:
            rows = [seeds.index(seed) for seed in grid.seeds]
            at = np.ix_(rows, [place[problem] for problem in grid.problems])
            both[0, number][at], both[1, number][at] = grid.values, grid.weights
    return both[0], both[1]
