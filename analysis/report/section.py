"""An experiment's section of a report: what its runs share and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

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
class Section:
    """One experiment: its groups, the rows of its tables, and what to bear in mind."""

    name: str
    groups: list[Group]
    ks: tuple[int, ...]
    stages: list[EvaluatedModel]  # empty where nothing was evaluated yet
    notes: list[str]

    @cached_property
    def pairs(self) -> list[PairedDifference]:
        """The paired differences of the groups at their ends, in every metric."""
        return paired_differences(self.ends, [metric.name for metric in reported_metrics(self.ks)])

    @cached_property
    def window(self) -> int:
        """Over how many steps the rewards are averaged."""
        return curves.smoothing_window(self.groups)

    @cached_property
    def rewards(self) -> pd.DataFrame:
        """The training rewards along the way, as `analysis.stats.curves.reward_curve` has them."""
        return curves.reward_curve(self.groups, self.window)

    @property
    def ends(self) -> list[EvaluatedModel]:
        """The stages but the bases."""
        return [stage for stage in self.stages if stage.step > 0]

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in (*group.runs, *group.repeats)]


def section(name: str, runs: Sequence[Run]) -> Section:
    """These runs as one experiment; labels say what differs among them."""
    accepted = (run.evals.loc[run.evals["verdict"] == "ACCEPTED", "program"] for run in runs)
    precompute_normal_forms(
        program for own in accepted for program in np.asarray(own.unique(), object)
    )
    groups = group_runs(runs)
    ks, notes = common_ks(runs)
    rows = evaluated_models(groups, ks)
    return Section(name, groups, ks, rows, [*caveats(groups, rows), *notes])
