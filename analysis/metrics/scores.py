"""From evaluation samples to scores: a value and a weight for each problem, metric by metric.

What a metric reports is the weighted mean over problems (`analysis.metrics.definitions`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.compute import memoize, parallel_map
from analysis.load.run_folders import Run
from analysis.metrics.definitions import DISTINCT, DRAWN
from analysis.metrics.diversity import (
    distinct_n,
    distinct_ratio,
    distinct_share,
    mean_edit_distance,
)
from analysis.metrics.normal_form import normal_form
from analysis.pass_at_k import KS, pass_at_k
from analysis.stats.intervals import Terms, terms

MANY = 20_000  # samples for which it pays to start processes


def judged(samples: pd.DataFrame) -> pd.DataFrame:
    """The samples that the judge could decide on: INFRA_ERROR leaves the denominator."""
    lost = samples["verdict"] == "INFRA_ERROR"
    return samples[~lost] if lost.any() else samples


def counts(samples: pd.DataFrame) -> pd.DataFrame:
    """By problem: n, the samples that were judged, and c, those that were accepted."""
    samples = judged(samples)
    codes, problems = pd.factorize(samples["problem"], sort=True)
    accepted = codes[(samples["verdict"] == "ACCEPTED").to_numpy(bool)]
    found = {"n": np.bincount(codes), "c": np.bincount(accepted, minlength=len(problems))}
    return pd.DataFrame(found, index=pd.Index(problems, name="problem"))


@memoize
def counted(run: Run, step: int) -> pd.DataFrame:
    """`counts` of one evaluation of a run."""
    return counts(run.evaluation(step))


def accepted_share(run: Run, step: int) -> float:
    """pass@1 at a step: the share of accepted samples, mean over problems; NaN where none was
    judged."""
    found = counted(run, step)
    return float((found["c"] / found["n"]).mean())


def pass_values(n: np.ndarray, c: np.ndarray, k: int) -> np.ndarray:
    """pass@k of each problem with c of n samples accepted; NaN with fewer than k samples."""
    pairs = zip(n.ravel().tolist(), c.ravel().tolist(), strict=True)
    found = [pass_at_k(n, c, k) if k <= n else np.nan for n, c in pairs]
    return np.array(found, float).reshape(n.shape)


def pass_scores(found: pd.DataFrame, ks: Sequence[int] = KS) -> dict[str, Row]:
    """pass@k from the `counts` of one evaluation; of problems with at least k judged samples."""
    n, c = (found[name].to_numpy() for name in ("n", "c"))
    problems, scores = found.index.to_numpy(object), {}
    for k in ks:
        value = pass_values(n, c, k)
        if (known := ~np.isnan(value)).any():
            scores[f"pass@{k}"] = Row(problems[known], value[known], np.ones(known.sum()))
    return scores


Values = dict[str, tuple[float, float]]  # metric → its value and weight, of one problem
Cell = tuple[list[str], list[str]]  # a problem's judged programs, and the accepted ones' forms


def _cells(known: pd.DataFrame, texts: dict[str, str]) -> dict[str, Cell]:
    """Problem → its programs and forms, the problems sorted; what is in `texts` is not held twice.

    An accepted program that this Python cannot parse is left out of the metrics on accepted
    programs.
    """
    right = _by_problem(known[known["verdict"] == "ACCEPTED"], texts)
    forms = {
        problem: [form for program in programs if (form := normal_form(program)) is not None]
        for problem, programs in right.items()
    }
    every = _by_problem(known, texts)
    return {problem: (programs, forms.get(problem, [])) for problem, programs in every.items()}


def _values(cell: Cell) -> Values:
    """`analysis.metrics.definitions.DIVERSITY` but for the entropy, of one problem, as far as defined."""
    programs, forms = cell
    found: Values = {}
    if len(forms) >= DRAWN:
        found[DISTINCT] = distinct_share(forms, DRAWN), 1
    if forms:
        found["distinct_ratio"] = distinct_ratio(forms), len(forms)
    if len(forms) >= 2:
        found["edit_distance"] = mean_edit_distance(forms), 1
    if (share := distinct_n(programs, 2)) is not None:
        found["distinct_2"] = share, 1
    return found


def _of_cells(cells: list[Cell]) -> list[Values]:
    return list(map(_values, cells))


def _diversity_scores(evaluations: Sequence[pd.DataFrame]) -> list[dict[str, Row]]:
    """`analysis.metrics.definitions.DIVERSITY` of each evaluation; of problems on which each is defined.

    Of many programs on all cores: a problem's on one of them, since runs write the same programs
    for it.
    """
    known = [judged(samples) for samples in evaluations]
    texts: dict[str, str] = {}
    cells = [_cells(samples, texts) for samples in known]
    jobs: dict[str, list[Cell]] = {}
    for problem, cell in (item for own in cells for item in own.items()):
        jobs.setdefault(problem, []).append(cell)
    found = parallel_map(_of_cells, list(jobs.values()), sum(map(len, known)) >= MANY)
    of = {problem: iter(values) for problem, values in zip(jobs, found, strict=True)}
    return [
        _rows({problem: next(of[problem]) for problem in own}) | _entropy(samples)
        for own, samples in zip(cells, known, strict=True)
    ]


def _rows(found: Mapping[str, Values]) -> dict[str, Row]:
    """By metric: the problems that have it."""
    by_metric: dict[str, dict[str, tuple[float, float]]] = {}
    for problem, values in found.items():
        for metric, value in values.items():
            by_metric.setdefault(metric, {})[problem] = value
    return {metric: _row(rows) for metric, rows in by_metric.items()}


def _by_problem(samples: pd.DataFrame, texts: dict[str, str]) -> dict[str, list[str]]:
    """Problem → its programs in their order; the problems sorted."""
    found: dict[str, list[str]] = {}
    columns = (samples[name].to_numpy(object) for name in ("problem", "program"))
    for problem, program in zip(*columns, strict=True):  # a series would convert each by itself
        found.setdefault(problem, []).append(texts.setdefault(program, program))
    return dict(sorted(found.items()))


def _row(rows: Mapping[str, tuple[float, float]]) -> Row:
    values, weights = np.array(list(rows.values()), float).T
    return Row(np.array(list(rows), object), values, weights)


def _entropy(known: pd.DataFrame) -> dict[str, Row]:
    """token_entropy, each sample's mean weighted by its tokens; nothing without that column."""
    if "entropy" not in known:
        return {}
    known = known[known["entropy"].notna() & (known["tokens"] > 0)]
    codes, problems = pd.factorize(known["problem"], sort=True)
    tokens = known["tokens"].to_numpy(float)
    nats = np.bincount(codes, known["entropy"].to_numpy(float) * tokens)
    weights = np.bincount(codes, tokens)
    row = Row(np.asarray(problems, object), nats / weights, weights)
    return {"token_entropy": row} if len(known) else {}


def scores(samples: pd.DataFrame, ks: Sequence[int] = KS) -> dict[str, Row]:
    """All of `analysis.metrics.definitions.metrics(ks)` that one evaluation has, by name."""
    return scores_of_each([samples], ks)[0]


def scores_of_each(
    evaluations: Sequence[pd.DataFrame], ks: Sequence[int] = KS
) -> list[dict[str, Row]]:
    """`scores` of several evaluations in one go, for which the cores can share them out."""
    passed = (pass_scores(counts(samples), ks) for samples in evaluations)
    return [a | b for a, b in zip(passed, _diversity_scores(evaluations), strict=True)]


@memoize
def evaluations(run: Run, ks: tuple[int, ...]) -> dict[str, Grid]:
    """pass@1, pass@k and DISTINCT of all evaluations of a run (steps, problems), found once.

    As `scores` has them, in one pass over the run's samples; nothing that takes longer.
    """
    steps, known = run.evaluated_steps, judged(run.evals)
    columns, problems = pd.factorize(known["problem"], sort=True)
    shape = len(steps), len(problems)
    cells = np.searchsorted(steps, known["step"].to_numpy()) * len(problems) + columns
    right = (known["verdict"] == "ACCEPTED").to_numpy(bool)
    n, c = (np.bincount(of, minlength=shape[0] * shape[1]) for of in (cells, cells[right]))
    values = {f"pass@{k}": pass_values(n, c, k) for k in sorted({1, *ks})}
    values[DISTINCT] = _distinct(cells[right], known["program"].to_numpy(object)[right], len(n))
    return {
        metric: Grid(tuple(steps), tuple(problems), np.nan_to_num(own), (~np.isnan(own)) * 1.0)
        for metric, flat in values.items()
        if not np.isnan(own := flat.reshape(shape)).all()
    }


def _distinct(cells: np.ndarray, programs: np.ndarray, size: int) -> np.ndarray:
    """`distinct_share` of DRAWN for each of `size` cells, from the cell and the program of each
    accepted sample; NaN where fewer can be parsed."""
    number: dict[str, int] = {}
    forms = [
        -1 if (form := normal_form(program)) is None else number.setdefault(form, len(number))
        for program in programs
    ]
    form = np.array(forms, dtype=int)
    parsed = form >= 0
    both, times = np.unique(cells[parsed] * len(number) + form[parsed], return_counts=True)
    cell = both // max(1, len(number))
    total = np.bincount(cell, times, minlength=size).astype(int)
    enough = total[cell] >= DRAWN
    cell, times = cell[enough], times[enough]
    drawn = pass_values(total[cell], times, DRAWN)  # the chance that this form is among DRAWN
    return np.where(total >= DRAWN, np.bincount(cell, drawn, minlength=size) / DRAWN, np.nan)


def at_step(run: Run, step: int, ks: tuple[int, ...]) -> dict[str, Row]:
    """Of `evaluations` the one at `step`."""
    place = run.evaluated_steps.index(step)
    return {
        metric: row
        for metric, grid in evaluations(run, ks).items()
        if len((row := grid.row(place)).values)
    }


# Scores as arrays: seeds × problems for each metric, and several groups' side by side.


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
