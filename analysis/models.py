"""The evaluated models of a comparison: the base models, and each group at its last evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Protocol

import numpy as np
import pandas as pd

from analysis.groups import (
    Group,
    Settings,
    canonical_json,
    distinct_labels,
    flatten,
    join_names,
    natural_sort_key,
    settings_of,
)
from analysis.metrics import at_temperature
from analysis.packed import is_counted
from analysis.pass_at_k import KS
from analysis.runs import Run
from analysis.scores import (
    ProblemScores,
    ScoreGrid,
    counts_at_step,
    scores_at_temperatures,
    stack_seeds,
    verdict_counts,
)

# Sections that determine a base model's evaluation: its model, problems, sampling and judge …
BASE_SECTIONS = ("model", "task", "eval", "judge", "data_hash")
# … and the keys among them that do not affect the evaluation at step 0.
NOT_OF_BASE = ("eval.every", "eval.final", "task.reward", "model.adapter")  # a new one adds 0


class ScoredGroup(Protocol):
    """A group to compare: its label, the seeds of its runs, and metric → scores."""

    @property
    def label(self) -> str: ...

    @property
    def seeds(self) -> tuple[int | None, ...]: ...

    @property
    def grids(self) -> Mapping[str, ScoreGrid]: ...


@dataclass(frozen=True)
class EvaluatedModel:
    """A row of the result table: a base model, or a group at its last evaluation.

    `scores` has `analysis.scores.scores` of each run; of a packed one, those that follow
    from counts.
    """

    label: str
    step: int
    runs: tuple[Run, ...]
    ks: tuple[int, ...]
    scores: list[dict[str, ProblemScores]] = field(compare=False)

    @property
    def is_base(self) -> bool:
        return self.step == 0

    @property
    def seeds(self) -> tuple[int | None, ...]:
        return tuple(run.seed for run in self.runs)

    @cached_property
    def grids(self) -> dict[str, ScoreGrid]:
        """Metric → its scores (seeds, problems)."""
        return stack_seeds(self.seeds, self.scores)

    def problems_defined(self, metric: str) -> list[int]:
        """Return the number of problems on which the metric is defined, for each run."""
        return [len(s[metric].values) if metric in s else 0 for s in self.scores]

    @cached_property
    def counts(self) -> list[pd.DataFrame]:
        """`analysis.scores.verdict_counts` of each run."""
        return [counts_at_step(run, self.step) for run in self.runs]

    def counts_of(self, metric: str) -> list[pd.DataFrame]:
        """Return `counts` at the temperature of a metric; empty for a run without it."""
        for temperature in self.temperatures:
            if metric.endswith(at_temperature("", temperature)):
                further = zip(self.further_samples, self.samples, strict=True)
                return [verdict_counts(own.get(temperature, main[:0])) for own, main in further]
        return self.counts

    @cached_property
    def sample_counts(self) -> list[int]:
        """The most samples of a problem, for each run."""
        return [samples_per_problem(samples) for samples in self.samples]

    @cached_property
    def samples(self) -> list[pd.DataFrame]:
        """The samples of the evaluation, one frame per run."""
        return [run.evaluation(self.step) for run in self.runs]

    @cached_property
    def further_samples(self) -> list[dict[float, pd.DataFrame]]:
        """Further temperature → the samples of the evaluation, one mapping per run."""
        return [run.further_evaluations(self.step) for run in self.runs]

    @property
    def temperatures(self) -> tuple[float, ...]:
        """The further temperatures at which any of the runs was evaluated."""
        return tuple(sorted({t for by_temperature in self.further_samples for t in by_temperature}))


def common_problems(models: Sequence[EvaluatedModel], metric: str) -> frozenset[str]:
    """Return the problems on which the metric is defined for all trained models, in some seed."""
    common: set[str] | None = None
    for grid in (model.grids.get(metric) for model in models if not model.is_base):
        columns = np.flatnonzero(grid.weights.sum(axis=0)) if grid else ()
        defined = {grid.problems[column] for column in columns} if grid else set()
        common = defined if common is None else common & defined
    return frozenset(common or ())


def evaluated_models(groups: Sequence[Group], ks: Sequence[int] = KS) -> list[EvaluatedModel]:
    """Return the base models, then each group at its last evaluation after training.

    There is one base for each model, task, evaluation and judge.
    """
    trained = [(g.label, g.last_step, g.complete) for g in groups if g.last_step > 0]
    evaluations = [*_base_evaluations(groups), *trained]
    pairs = [(run, step) for _, step, runs in evaluations for run in runs]
    samples = [run.evaluation(step) for run, step in pairs]
    further = [run.further_evaluations(step) for run, step in pairs]
    scored = scores_at_temperatures(samples, further, ks)
    scores = iter(
        {name: score for name, score in found.items() if not run.packed or is_counted(name)}
        for (run, _), found in zip(pairs, scored, strict=True)
    )
    return [
        EvaluatedModel(label, step, runs, tuple(ks), list(islice(scores, len(runs))))
        for label, step, runs in evaluations
    ]


def _base_evaluations(groups: Sequence[Group]) -> list[tuple[str, int, tuple[Run, ...]]]:
    """Return label, step 0 and runs of each base; one run stands for all of a seed."""
    bases: dict[str, tuple[Settings, dict[int | None, Run]]] = {}
    for run in (run for group in groups for run in group.runs if 0 in run.evaluated_steps):
        settings = base_settings(run)
        key = canonical_json({name: canonical_json(value) for name, value in settings.items()})
        by_seed = bases.setdefault(key, (settings, {}))[1]
        known = by_seed.get(run.seed)
        # Of runs that share a base's samples, one with all further temperatures stands for them.
        if not known or len(known.further_evaluations(0)) <= len(run.further_evaluations(0)):
            by_seed[run.seed] = run
    variants = [settings for settings, _ in bases.values()]
    models = [{k: v for k, v in one.items() if k.startswith("model.")} for one in variants]
    unplaced = [{k: v for k, v in one.items() if k != "model.path"} for one in models]
    if len(set(map(canonical_json, unplaced))) == len(set(map(canonical_json, models))):
        # The path says nothing that the other keys of the model do not say.
        variants = [{k: v for k, v in one.items() if k != "model.path"} for one in variants]
    names = [{"model.name": settings.get("model.name")} for settings in variants]
    if len({str(name) for name in names}) == len(names):
        variants = names  # they say most, and other keys differ with them
    labels = distinct_labels("base", variants)
    by_label = zip(labels, (tuple(by_seed.values()) for _, by_seed in bases.values()), strict=True)
    evaluations = [(label, 0, runs) for label, runs in by_label]
    return sorted(evaluations, key=lambda evaluation: natural_sort_key(evaluation[0]))


def base_settings(run: Run) -> Settings:
    """Return the settings, other than the seed, that determine the evaluation at step 0."""
    configured = {
        key: value
        for key, value in settings_of(run).items()
        if key.split(".")[0] in BASE_SECTIONS and not key.startswith(NOT_OF_BASE)
    }
    judge = {key: run.info.get(key) for key in ("judge_version", "sandbox")}
    # A run whose evaluations alone have turns shares its base with one that trains with them.
    turns = configured.pop("task.turns", None)
    if turns is not None or configured.get("eval.turns") is not None:
        configured["eval.turns"] = configured.get("eval.turns") or turns
    return configured | flatten(judge)


def common_ks(runs: Sequence[Run]) -> tuple[tuple[int, ...], list[str]]:
    """Return the k of pass@k that all runs have in `eval.k` and enough samples for, and notes.

    A note names the k that are left out. Without a common k, the result is k = 1.
    """
    evaluated = [(run.ks, samples_per_problem(run.evals)) for run in runs if len(run.evals)]
    wanted = sorted({k for ks, _ in evaluated for k in ks})
    common = [k for k in wanted if all(k in ks and k <= most for ks, most in evaluated)]
    left = join_names([f"pass@{k}" for k in wanted if k not in common] or [""])
    why = "not all runs have it in eval.k and as many samples per problem"
    return tuple(common) or (1,), [f"{left} is left out: {why}."] if left else []


def samples_per_problem(samples: pd.DataFrame) -> int:
    """Return the most samples that a problem has in one evaluation."""
    problem, _ = pd.factorize(samples["problem"])
    step, steps = pd.factorize(samples["step"])
    return int(np.bincount(problem * len(steps) + step).max())
