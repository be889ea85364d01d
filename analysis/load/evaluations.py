"""The rows of a comparison: the models as they were evaluated, before training and at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Protocol

import numpy as np
import pandas as pd

from analysis.load.groups import (
    Group,
    Settings,
    canonical_json,
    distinct_labels,
    flatten,
    join_names,
    natural_sort_key,
    settings_of,
)
from analysis.load.run_folders import Run
from analysis.metrics.scores import Grid, Row, counted, scores_of_each, stacked
from analysis.pass_at_k import KS

# What makes a base another one: its model, its problems, how it is sampled, and who judges.
OF_BASE = ("model", "task", "eval", "judge", "data_hash")
# Settings among those that do not touch the evaluation at step 0.
NOT_OF_BASE = ("eval.every", "task.reward")


class Scored(Protocol):
    """What is compared: `label`, its runs' `seeds`, and metric → scores (seeds, problems)."""

    label: str
    seeds: tuple[int | None, ...]
    grids: dict[str, Grid]


@dataclass(frozen=True)
class Stage:
    """One row of the result table: a model (the base, or a group's at its end) as evaluated."""

    label: str
    step: int
    runs: tuple[Run, ...]
    ks: tuple[int, ...]
    scores: list[dict[str, Row]] = field(
        compare=False
    )  # `analysis.metrics.scores.scores` of each run

    @property
    def seeds(self) -> tuple[int | None, ...]:
        return tuple(run.seed for run in self.runs)

    @cached_property
    def grids(self) -> dict[str, Grid]:
        """Metric → its scores as an array (seeds, problems)."""
        return stacked(self.seeds, self.scores)

    def problems_with(self, metric: str) -> list[int]:
        """The number of problems on which the metric is defined, for each run."""
        return [len(found[metric].values) if metric in found else 0 for found in self.scores]

    @cached_property
    def counts(self) -> list[pd.DataFrame]:
        """`analysis.metrics.scores.counts`, one frame per run."""
        return [counted(run, self.step) for run in self.runs]

    @cached_property
    def sizes(self) -> list[int]:
        """The most samples that a problem has, for each run."""
        return [samples_per_problem(samples) for samples in self.samples]

    @cached_property
    def samples(self) -> list[pd.DataFrame]:
        """The evaluation's samples, one frame per run."""
        return [run.evaluation(self.step) for run in self.runs]


def stages(groups: Sequence[Group], ks: Sequence[int] = KS) -> list[Stage]:
    """The bases first (one for each model, task, evaluation and judge), then each group's end."""
    ends = [(g.label, g.last_step, g.complete) for g in groups if g.last_step > 0]
    return _scored([*_bases(groups), *ends], ks)


def bases(groups: Sequence[Group], ks: Sequence[int] = KS) -> list[Stage]:
    """The evaluations at step 0; runs that share a base and a seed share its samples too."""
    return _scored(_bases(groups), ks)


Unscored = tuple[str, int, tuple[Run, ...]]  # label, step, runs


def _scored(rows: Sequence[Unscored], ks: Sequence[int]) -> list[Stage]:
    each = [run.evaluation(step) for _, step, runs in rows for run in runs]
    found = iter(scores_of_each(each, ks))
    return [Stage(*row, tuple(ks), list(islice(found, len(row[2])))) for row in rows]


def _bases(groups: Sequence[Group]) -> list[Unscored]:
    found: dict[str, tuple[Settings, dict[int | None, Run]]] = {}
    for run in (run for group in groups for run in group.runs if 0 in run.evaluated_steps):
        settings = base_settings(run)
        key = canonical_json({name: canonical_json(value) for name, value in settings.items()})
        found.setdefault(key, (settings, {}))[1][run.seed] = run
    labels = distinct_labels("base", _without_paths([settings for settings, _ in found.values()]))
    members = [tuple(runs.values()) for _, runs in found.values()]
    rows = [(label, 0, runs) for label, runs in zip(labels, members, strict=True)]
    return sorted(rows, key=lambda row: natural_sort_key(row[0]))


def _without_paths(settings: Sequence[Settings]) -> Sequence[Settings]:
    """Without the folder that a model lies in, where the rest of `model` tells all apart."""
    spelt = [{key: canonical_json(value) for key, value in one.items()} for one in settings]
    named = [[(k, v) for k, v in one.items() if k.startswith("model.")] for one in spelt]
    whole = {canonical_json(of) for of in named}
    bare = {canonical_json([one for one in of if one[0] != "model.path"]) for of in named}
    if len(bare) < len(whole):
        return settings
    return [{key: value for key, value in one.items() if key != "model.path"} for one in settings]


def base_settings(run: Run) -> Settings:
    """What the evaluation at step 0 depends on, the seed aside."""
    configured = {
        key: value
        for key, value in settings_of(run).items()
        if key.split(".")[0] in OF_BASE and not key.startswith(NOT_OF_BASE)
    }
    judge = {key: run.info.get(key) for key in ("judge_version", "sandbox")}
    return configured | flatten(judge)


def ks_of(runs: Sequence[Run]) -> tuple[tuple[int, ...], list[str]]:
    """The k of pass@k that all runs ask for (`eval.k`) and have the samples for, and notes.

    A note for each k that is left out, with the reason. Where no k is common, k = 1.
    """
    runs = [run for run in runs if len(run.evals)]
    asked = {run: set(run.ks) for run in runs}
    reached = {run: {k for k in asked[run] if k <= samples_per_problem(run.evals)} for run in runs}
    notes = []
    for k in sorted(set().union(*asked.values())):
        short = [run for run in runs if k in asked[run] - reached[run]]
        if short:
            most = max(samples_per_problem(run.evals) for run in short)
            notes.append(
                f"pass@{k} is left out: {join_names([run.name for run in short])} asked for it "
                f"(eval.k) with only {most} samples per problem."
            )
    common = set.intersection(*reached.values()) if reached else set()
    unshared = sorted(set().union(*reached.values()) - common)
    if unshared:
        left = join_names([f"pass@{k}" for k in unshared])
        are = "is" if len(unshared) == 1 else "are"
        notes.append(f"The runs differ in eval.k; {left} {are} not in all of them and left out.")
    return tuple(sorted(common)) or (1,), notes


def samples_per_problem(samples: pd.DataFrame) -> int:
    """The most samples that a problem has in one evaluation."""
    problem, _ = pd.factorize(samples["problem"])
    step, steps = pd.factorize(samples["step"])
    return int(np.bincount(problem * len(steps) + step).max())
