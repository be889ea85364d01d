"""One experiment: in memory with its runs, and as the section that the report shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.groups import Group, group_runs
from analysis.load.run_folders import Run
from analysis.metrics.definitions import reported_metrics
from analysis.metrics.evaluated_models import EvaluatedModel, common_ks, evaluated_models
from analysis.metrics.normal_form import precompute_normal_forms
from analysis.report.caveats import caveats
from analysis.stats import curves
from analysis.stats.differences import PairedDifference, paired_differences


@dataclass(frozen=True)
class Experiment:
    """The runs of one `name`: their groups, the evaluated models, and notes for the reader.

    `models` is empty if nothing was evaluated yet.
    """

    name: str
    groups: list[Group]
    ks: tuple[int, ...]
    models: list[EvaluatedModel]
    notes: list[str]

    @cached_property
    def pairs(self) -> list[PairedDifference]:
        """The paired differences of the trained models, in every metric."""
        metrics = [metric.name for metric in reported_metrics(self.ks)]
        return paired_differences(self.trained, metrics)

    @cached_property
    def reward_window(self) -> int:
        """The number of steps over which rewards are averaged."""
        return curves.smoothing_window(self.groups)

    @cached_property
    def rewards(self) -> pd.DataFrame:
        """The training rewards, as returned by `analysis.stats.curves.reward_curve`."""
        return curves.reward_curve(self.groups, self.reward_window)

    @property
    def bases(self) -> list[EvaluatedModel]:
        return [model for model in self.models if model.is_base]

    @property
    def trained(self) -> list[EvaluatedModel]:
        return [model for model in self.models if not model.is_base]

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in (*group.runs, *group.repeats)]


def build_experiment(name: str, runs: Sequence[Run]) -> Experiment:
    """Group and score these runs as one experiment; labels name their differences."""
    accepted = (run.evals.loc[run.evals["verdict"] == "ACCEPTED", "program"] for run in runs)
    precompute_normal_forms(
        program for programs in accepted for program in np.asarray(programs.unique(), object)
    )
    groups = group_runs(runs)
    ks, notes = common_ks(runs)
    models = evaluated_models(groups, ks)
    return Experiment(name, groups, ks, models, [*caveats(groups, models), *notes])


@dataclass(frozen=True)
class Headline:
    """Short statements on one metric; the title is "" for statements on none."""

    title: str
    statements: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return the statements as plain text."""
        if not self.title:
            return list(self.statements)
        return [f"{self.title}:", *(f"  {statement}" for statement in self.statements)]


@dataclass(frozen=True)
class Section:
    """An experiment as the report shows it, without its runs."""

    name: str
    slug: str  # in a path and in a link
    ks: tuple[int, ...]
    headlines: list[Headline]
    notes: list[str]
    tables: dict[str, pd.DataFrame]  # by file name
    context: dict[str, Any]  # of the page's template

    @property
    def results(self) -> pd.DataFrame:
        return self.tables["table.csv"]
