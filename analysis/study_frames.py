"""A study as frames, paired differences and figures, for Python and notebooks.

    from analysis import open_study
    study = open_study("docs/results/study-front")
    study.counts                                 # a frame: judged and accepted samples
    study.paired("spo_mc", "ppo", at="pass@10")  # the difference, its interval and its p-values
    study.front(["spo_mc", "ppo"])               # draws itself in a notebook

All numbers are those of `make report` of the same runs. Programs are compared in further processes.
So a script, unlike a notebook, opens a study below `if __name__ == "__main__":`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from analysis.budgets import evaluation_curve
from analysis.comparisons import difference_table, find_pair
from analysis.experiment import UNPLANNED, Experiment, Plan, read_experiment
from analysis.figures import Axis, Panel, Series, axis_range, legend_panel
from analysis.metrics import counts_at_step
from analysis.runs import Run, RunError, experiment_of, find_runs
from analysis.tables import experiment_tables


@dataclass(frozen=True)
class Study:
    """The runs of a study. Arms have the names of its file; other runs are labelled by settings."""

    experiment: Experiment

    @property
    def arms(self) -> list[str]:
        return [group.label for group in self.experiment.groups]

    @cached_property
    def counts(self) -> pd.DataFrame:
        """n judged and c accepted samples for each arm, seed, step and problem."""
        cells = {
            (*key, t): counts_at_step(r, t) for key, r in self._runs for t in r.evaluated_steps
        }
        return pd.concat(cells, names=["arm", "seed", "step"]).reset_index()

    @cached_property
    def training(self) -> pd.DataFrame:
        """The metrics of all runs: a row for each arm, seed and step."""
        by_run = {key: run.metrics for key, run in self._runs}
        return pd.concat(by_run, names=["arm", "seed"]).droplevel(2).reset_index()

    @cached_property
    def curve(self) -> pd.DataFrame:
        """Metrics and spent budgets along training: a row for each arm and evaluated step."""
        return evaluation_curve(self.experiment.groups, self.experiment.ks)

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables of the report by name: table, differences, thresholds, …"""
        tables = experiment_tables(self.experiment)
        return {name.removesuffix(".csv"): table for name, table in tables.items()}

    def paired(self, a: str, b: str, at: str = "pass@1") -> pd.Series:
        """Return a - b in one metric, a row of the table `differences`.

        `at` may also be `pass@10 at equal pass@1`. Raises ValueError if there is no such pair.
        """
        pairs = self.experiment.pairs
        try:
            found = find_pair([pair for pair in pairs if pair.metric == at], a, b)
        except KeyError as missing:
            metrics = ", ".join(dict.fromkeys(pair.metric for pair in pairs))
            raise ValueError(
                f"no difference {a} - {b} at {at}; arms: {', '.join(self.arms)}; at: {metrics}"
            ) from missing
        return difference_table([found]).iloc[0]

    def front(self, arms: Sequence[str] = ()) -> Panel:
        """Draw pass@k over pass@1 along training, of these arms or of all."""
        return self.curves(f"pass@{self.experiment.ks[-1]}", "pass@1", arms)

    def curves(self, y: str, x: str = "step", arms: Sequence[str] = ()) -> Panel:
        """Draw a column of `curve` over another."""
        return along_training(self.curve, y, x, arms or self.arms)

    @property
    def _runs(self) -> list[tuple[tuple[str, int | None], Run]]:
        return [((g.label, run.seed), run) for g in self.experiment.groups for run in g.runs]


def along_training(curve: pd.DataFrame, y: str, x: str, arms: Sequence[str]) -> Panel:
    """Draw y over x for each arm after the base, in a drawing with the arms' names."""
    parts = [(arm, curve[(curve["label"] == arm) & (curve["step"] > 0)]) for arm in arms]
    series = [Series(arm, *part[[x, y]].to_numpy(float).T) for arm, part in parts]
    across = Axis(f"{x} along training", *axis_range(one.x for one in series))
    up = Axis(y, *axis_range(one.y for one in series))
    return legend_panel(f"{y} over {x}", across, up, series, names_at=60)


def read_study(folder: Path, plan: Plan = UNPLANNED) -> Study:
    """Read a packed study or a folder of runs. Raises RunError, also for runs of several names."""
    paths = find_runs([folder], "study")
    names = sorted({experiment_of(path) for path in paths})
    if len(names) > 1:
        raise RunError(f"study={folder}: runs of {', '.join(names)}; give the folder of one")
    experiment, _ = read_experiment(names[0], paths, plan)
    assert experiment is not None, "a damaged run is an error"
    return Study(experiment)
