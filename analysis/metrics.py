"""The metrics reported of a model, and its scores in them: a value and a weight per problem.

The reported number, for which intervals are given, is the weighted mean over problems.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.pass_at_k import KS, pass_at_k
from analysis.programs import (
    distinct_accepted,
    distinct_n,
    distinct_ratio,
    distinct_share,
    mean_edit_distance,
    normal_form,
    parallel_map,
)
from analysis.runs import Run, memoize, parse_yaml

DRAWN = 5  # accepted programs per problem that distinct_of_5 draws
DISTINCT = f"distinct_of_{DRAWN}"
DISTINCT_ACCEPTED = "distinct_accepted@"  # and k
FURTHER = " (T="  # and a temperature, in the name of a metric at a further temperature
AT_EQUAL = " at equal pass@1"  # ends the name of a difference on the front (analysis/front.py)


@dataclass(frozen=True, slots=True)
class Metric:
    """A reported number: its column name, its heading and its meaning in words."""

    name: str
    title: str
    meaning: str


def at_temperature(name: str, temperature: float) -> str:
    """Return the name, or the title, of a metric at a further temperature: pass@10 (T=1)."""
    return f"{name}{FURTHER}{temperature:g})"


def without_temperature(metric: str) -> str:
    """Return the name of the main metric: pass@10 of pass@10 (T=1)."""
    return metric.partition(FURTHER)[0].removesuffix(AT_EQUAL)


def reported_metrics(ks: Sequence[int], temperature: float | None = None) -> tuple[Metric, ...]:
    """Return pass@k and distinct_accepted@k for these k, then the other diversity metrics.

    There is no distinct_accepted@1: one accepted sample is one distinct program, as in pass@1.
    `temperature`: one of `eval.further_temperatures`.
    """
    if temperature is not None:
        note = f" Samples at temperature {temperature:g}."
        at = partial(at_temperature, temperature=temperature)
        metrics = reported_metrics(ks)
        return tuple(Metric(at(m.name), at(m.title), m.meaning + note) for m in metrics)
    passed = [_of_file("pass@{k}", k) for k in ks]
    return (*passed, *(_of_file("distinct_accepted@{k}", k) for k in ks if k > 1), *DIVERSITY)


def _of_file(name: str, k: int) -> Metric:
    return Metric(*(text.replace("{k}", str(k)) for text in (name, *_TEXTS[name])))


# name → [title, meaning], with {k}: of pass@k, and of DRAWN programs
_TEXTS = parse_yaml(Path(__file__).with_name("metrics.yaml").read_text())
DIVERSITY = tuple(_of_file(name, DRAWN) for name in _TEXTS if "@" not in name)
PARTIAL = (DISTINCT, "edit_distance")  # defined only where enough samples are accepted
TITLES = {metric.name: metric.title for metric in DIVERSITY}


def metric_bounds(metric: str) -> tuple[float, float]:
    """Return the least and the greatest possible value of a metric."""
    metric = without_temperature(metric)
    if metric.startswith(DISTINCT_ACCEPTED):
        return 0.0, float(metric.removeprefix(DISTINCT_ACCEPTED))
    return 0.0, float("inf") if metric == "token_entropy" else 1.0


MIN_PARALLEL = 20_000  # samples from which worker processes pay


@dataclass(frozen=True)
class ProblemScores:
    """One metric of one run: values and weights (problems,); `problems` are sorted."""

    problems: np.ndarray
    values: np.ndarray
    weights: np.ndarray

    def mean(self) -> float:
        """Return the weighted mean over problems."""
        return float(np.average(self.values, weights=self.weights))


@dataclass(frozen=True)
class ScoreGrid:
    """One metric of a group: values and weights (seeds, problems), weight 0 where undefined.

    `problems` are sorted. The rows may also be evaluation steps in place of seeds.
    """

    seeds: tuple[Hashable, ...]
    problems: tuple[str, ...]
    values: np.ndarray
    weights: np.ndarray

    def measured(self) -> np.ndarray:
        """Return the values, NaN where undefined."""
        return np.where(self.weights > 0, self.values, np.nan)

    def row(self, index: int) -> ProblemScores:
        """Return one seed's scores on the problems for which the metric is defined."""
        defined = self.weights[index] > 0
        problems = np.array(self.problems, dtype=object)[defined]
        return ProblemScores(problems, self.values[index][defined], self.weights[index][defined])

    def restrict(self, problems: Collection[str]) -> ScoreGrid:
        """Return the grid on those of its problems that are among these."""
        columns = [i for i, problem in enumerate(self.problems) if problem in problems]
        names = tuple(self.problems[i] for i in columns)
        return ScoreGrid(self.seeds, names, self.values[:, columns], self.weights[:, columns])


# Judged and accepted samples, and pass@k.


def judged_samples(samples: pd.DataFrame) -> pd.DataFrame:
    """Return the samples with a verdict; INFRA_ERROR does not count in the denominator."""
    failed = samples["verdict"] == "INFRA_ERROR"
    return samples[~failed] if failed.any() else samples


def verdict_counts(samples: pd.DataFrame) -> pd.DataFrame:
    """Return for each problem n, its judged samples, and c, its accepted samples."""
    samples = judged_samples(samples)
    codes, problems = pd.factorize(samples["problem"], sort=True)
    accepted = codes[(samples["verdict"] == "ACCEPTED").to_numpy(bool)]
    columns = {"n": np.bincount(codes), "c": np.bincount(accepted, minlength=len(problems))}
    return pd.DataFrame(columns, index=pd.Index(problems, name="problem"))


@memoize
def counts_at_step(run: Run, step: int) -> pd.DataFrame:
    """Return `verdict_counts` of one evaluation of a run."""
    return verdict_counts(run.evaluation(step))


def accepted_share(run: Run, step: int) -> float:
    """Return pass@1 at a step: accepted samples / judged ones, mean over problems, or NaN."""
    counts = counts_at_step(run, step)
    return float((counts["c"] / counts["n"]).mean())


def pass_values(n: np.ndarray, c: np.ndarray, k: int) -> np.ndarray:
    """Return pass@k of each problem with c of n samples accepted; NaN if n < k."""
    pairs = zip(n.ravel().tolist(), c.ravel().tolist(), strict=True)
    values = [pass_at_k(n, c, k) if k <= n else np.nan for n, c in pairs]
    return np.array(values, float).reshape(n.shape)


def pass_scores(counts: pd.DataFrame, ks: Sequence[int] = KS) -> dict[str, ProblemScores]:
    """Return pass@k from `verdict_counts`, on the problems with at least k judged samples."""
    n, c = (counts[name].to_numpy() for name in ("n", "c"))
    problems, scores = counts.index.to_numpy(object), {}
    for k in ks:
        values = pass_values(n, c, k)
        if (defined := ~np.isnan(values)).any():
            ones = np.ones(defined.sum())
            scores[f"pass@{k}"] = ProblemScores(problems[defined], values[defined], ones)
    return scores


# Diversity, problem by problem.


Programs = tuple[list[str], list[str]]  # judged programs of a problem, and forms of accepted ones
Weighted = tuple[float, float]  # a value and its weight


def _programs_by_problem(judged: pd.DataFrame, texts: dict[str, str]) -> dict[str, Programs]:
    """Return problem → its programs and forms, problems sorted; `texts` shares equal strings.

    Accepted programs that this Python cannot parse do not count in the metrics of accepted ones.
    """
    grouped: dict[str, Programs] = {}
    columns = (judged[name].to_numpy(object) for name in ("problem", "program", "verdict"))
    for problem, program, verdict in zip(*columns, strict=True):
        programs, forms = grouped.setdefault(problem, ([], []))
        programs.append(texts.setdefault(program, program))
        if verdict == "ACCEPTED" and (form := normal_form(program)) is not None:
            forms.append(form)
    return dict(sorted(grouped.items()))


def _diversity(programs: list[str], forms: list[str], ks: Sequence[int]) -> dict[str, Weighted]:
    """Return the diversity metrics other than entropy, where they are defined."""
    n = len(programs)
    values: dict[str, Weighted] = {
        f"{DISTINCT_ACCEPTED}{k}": (distinct_accepted(forms, n, k), 1) for k in ks if 1 < k <= n
    }
    if len(forms) >= DRAWN:
        values[DISTINCT] = distinct_share(forms, DRAWN), 1
    if forms:
        values["distinct_ratio"] = distinct_ratio(forms), len(forms)
    if len(forms) >= 2:
        values["edit_distance"] = mean_edit_distance(forms), 1
    if (share := distinct_n(programs, 2)) is not None:
        values["distinct_2"] = share, 1
    return values


def _diversities(ks: Sequence[int], problems: list[Programs]) -> list[dict[str, Weighted]]:
    return [_diversity(*problem, ks) for problem in problems]


def _diversity_scores(
    evaluations: Sequence[pd.DataFrame], ks: Sequence[int]
) -> list[dict[str, ProblemScores]]:
    """Return the diversity metrics of each evaluation, on the problems where each is defined.

    Many programs are measured on all cores. All of a problem's programs go to the same core,
    because runs write the same programs for it.
    """
    judged = [judged_samples(samples) for samples in evaluations]
    texts: dict[str, str] = {}
    by_evaluation = [_programs_by_problem(samples, texts) for samples in judged]
    jobs: dict[str, list[Programs]] = {}
    for by_problem in by_evaluation:
        for problem, programs in by_problem.items():
            jobs.setdefault(problem, []).append(programs)
    parallel = sum(map(len, judged)) >= MIN_PARALLEL
    results = parallel_map(partial(_diversities, tuple(ks)), list(jobs.values()), parallel)
    next_values = {problem: iter(values) for problem, values in zip(jobs, results, strict=True)}
    found = []
    for by_problem, samples in zip(by_evaluation, judged, strict=True):
        rows = [next(next_values[problem]) for problem in by_problem]
        cells = {
            metric: [row.get(metric, (0.0, 0.0)) for row in rows]
            for metric in dict.fromkeys(chain(*rows))
        }
        found.append(problem_scores(by_problem, cells) | _entropy_scores(samples))
    return found


def problem_scores(
    problems: Iterable[str], cells: Mapping[str, Sequence[Weighted]]
) -> dict[str, ProblemScores]:
    """Return metric → scores from the cell of each problem; problems of weight 0 are left out."""
    names = np.array(list(problems), dtype=object)
    order = np.argsort(names)
    scores = {}
    for metric, pairs in cells.items():
        values, weights = np.array(pairs, dtype=float).reshape(-1, 2)[order].T
        if (kept := weights > 0).any():
            scores[metric] = ProblemScores(names[order][kept], values[kept], weights[kept])
    return scores


def _entropy_scores(judged: pd.DataFrame) -> dict[str, ProblemScores]:
    """Return token_entropy, with samples weighted by their tokens; nothing if not recorded."""
    if "entropy" not in judged:
        return {}
    judged = judged[judged["entropy"].notna() & (judged["tokens"] > 0)]
    codes, problems = pd.factorize(judged["problem"], sort=True)
    tokens = judged["tokens"].to_numpy(float)
    nats = np.bincount(codes, judged["entropy"].to_numpy(float) * tokens)
    weights = np.bincount(codes, tokens)
    scores = ProblemScores(np.asarray(problems, object), nats / weights, weights)
    return {"token_entropy": scores} if len(judged) else {}


# All metrics of an evaluation, and the cheap ones of all evaluations of a run.


def scores(samples: pd.DataFrame, ks: Sequence[int] = KS) -> dict[str, ProblemScores]:
    """Return those of `reported_metrics(ks)` that one evaluation has, by name."""
    return scores_of_each([samples], ks)[0]


def scores_of_each(
    evaluations: Sequence[pd.DataFrame], ks: Sequence[int] = KS
) -> list[dict[str, ProblemScores]]:
    """Return `scores` of several evaluations, shared out over the cores."""
    passed = (pass_scores(verdict_counts(samples), ks) for samples in evaluations)
    return [a | b for a, b in zip(passed, _diversity_scores(evaluations, ks), strict=True)]


def scores_at_temperatures(
    evaluations: Sequence[pd.DataFrame],
    further: Sequence[Mapping[float, pd.DataFrame]],
    ks: Sequence[int] = KS,
) -> list[dict[str, ProblemScores]]:
    """Return `scores_of_each`, with those at further temperatures under `at_temperature` names.

    `further` has temperature → samples for each of the evaluations.
    """
    others = [samples for by_temperature in further for samples in by_temperature.values()]
    every = scores_of_each([*evaluations, *others], ks)
    results, of_others = every[: len(evaluations)], iter(every[len(evaluations) :])
    for result, by_temperature in zip(results, further, strict=True):
        for temperature in by_temperature:
            for name, score in next(of_others).items():
                result[at_temperature(name, temperature)] = score
    return results


@memoize
def scores_by_step(run: Run, ks: tuple[int, ...]) -> dict[str, ScoreGrid]:
    """Return pass@1, pass@k, DISTINCT and distinct_accepted@k of a run's evaluations.

    Grids are (steps, problems); distinct_accepted@k is that of the greatest k.

    Equal to `scores`, but computed in one pass over the run's samples, without slower metrics.
    """
    steps, judged = run.evaluated_steps, judged_samples(run.evals)
    columns, problems = pd.factorize(judged["problem"], sort=True)
    shape = len(steps), len(problems)
    cells = np.searchsorted(steps, judged["step"].to_numpy()) * len(problems) + columns
    accepted = (judged["verdict"] == "ACCEPTED").to_numpy(bool)
    size = shape[0] * shape[1]
    n, c = (np.bincount(indices, minlength=size) for indices in (cells, cells[accepted]))
    by_metric = {f"pass@{k}": pass_values(n, c, k) for k in sorted({1, *ks})}
    programs = judged["program"].to_numpy(object)[accepted]
    by_metric |= _distinct_programs(cells[accepted], programs, n, ks)
    grids = {}
    for metric, flat in by_metric.items():
        values = flat.reshape(shape)
        if not (missing := np.isnan(values)).all():
            weights = (~missing) * 1.0
            grids[metric] = ScoreGrid(tuple(steps), tuple(problems), np.nan_to_num(values), weights)
    return grids


def _distinct_programs(
    cells: np.ndarray, programs: np.ndarray, judged: np.ndarray, ks: Sequence[int]
) -> dict[str, np.ndarray]:
    """Return DISTINCT and distinct_accepted@k, for the greatest k, of each cell.

    `cells` and `programs` have an entry per accepted sample; `judged` is the number of judged
    samples of each cell. NaN where a cell has too few.
    """
    number_of: dict[str, int] = {}
    numbers = [
        -1 if (form := normal_form(program)) is None else number_of.setdefault(form, len(number_of))
        for program in programs
    ]
    forms, size, k = np.array(numbers, dtype=int), len(judged), max(ks)
    parsed = forms >= 0
    cells_and_forms = cells[parsed] * len(number_of) + forms[parsed]
    unique, counts = np.unique(cells_and_forms, return_counts=True)
    cell = unique // max(1, len(number_of))
    total = np.bincount(cell, counts, minlength=size).astype(int)
    found = {}
    for metric, drawn, of in ((DISTINCT, DRAWN, total), (f"{DISTINCT_ACCEPTED}{k}", k, judged)):
        # the sum over forms of the probability that the form is among those drawn
        enough = of[cell] >= drawn
        chances = pass_values(of[cell[enough]], counts[enough], drawn)
        sums = np.bincount(cell[enough], chances, minlength=size)
        found[metric] = np.where(of >= drawn, sums, np.nan)
    return found | {DISTINCT: found[DISTINCT] / DRAWN}


def scores_at_step(run: Run, step: int, ks: tuple[int, ...]) -> dict[str, ProblemScores]:
    """Return one step of `scores_by_step`."""
    index = run.evaluated_steps.index(step)
    return {
        metric: row
        for metric, grid in scores_by_step(run, ks).items()
        if len((row := grid.row(index)).values)
    }


# Scores of several seeds or groups as arrays.


def stack_seeds(
    seeds: Sequence[Hashable], by_seed: Sequence[Mapping[str, ProblemScores]]
) -> dict[str, ScoreGrid]:
    """Return metric → `ScoreGrid` from the scores of each seed, weight 0 where it has none."""
    rows = [row for by_metric in by_seed for row in by_metric.values()]
    problems = np.unique(np.concatenate([row.problems for row in rows])) if rows else np.array([])
    metrics = sorted(set().union(*by_seed))
    arrays = np.zeros((len(metrics), 2, len(by_seed), len(problems)))
    for values_and_weights, metric in zip(arrays, metrics, strict=True):
        for seed, by_metric in enumerate(by_seed):
            if (row := by_metric.get(metric)) is not None:
                columns = np.searchsorted(problems, row.problems)
                values_and_weights[:, seed, columns] = row.values, row.weights
    return {
        metric: ScoreGrid(tuple(seeds), tuple(problems), values, weights)
        for metric, (values, weights) in zip(metrics, arrays, strict=True)
    }


def align_grids(grids: Sequence[ScoreGrid | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return values and weights (grids, seeds, problems) on all seeds and problems of the grids.

    The weight is 0 where a grid lacks a seed or a problem, and everywhere for None.
    """
    present = [grid for grid in grids if grid is not None]
    seeds = list(dict.fromkeys(seed for grid in present for seed in grid.seeds))
    problems = sorted(set().union(*(grid.problems for grid in present)))
    column = {problem: i for i, problem in enumerate(problems)}
    values, weights = np.zeros((2, len(grids), len(seeds), len(problems)))
    for i, grid in enumerate(grids):
        if grid is not None:
            rows = [seeds.index(seed) for seed in grid.seeds]
            cells = np.ix_(rows, [column[problem] for problem in grid.problems])
            values[i][cells], weights[i][cells] = grid.values, grid.weights
    return values, weights


def is_counted(metric: str) -> bool:
    """Return whether a metric, at whatever temperature, follows from the counts."""
    main = without_temperature(metric)
    return main.startswith(("pass@", DISTINCT_ACCEPTED)) or main in (DISTINCT, "distinct_ratio")
