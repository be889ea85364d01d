"""The results of a study by arm: scores, differences, letters and costs."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from analysis.packed import PackedStudy
from analysis.runs import Run, is_packed
from experiments.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

LESS = {"time": "s", "memory": "MB"}  # metrics where less is better → unit
TABLES = (  # of the report
    *("table", "differences", "contrasts", "letters", "runs", "costs", "equal_budget"),
    "curve_fits",
)
OF_TURNS = ("turns", "turn_differences")  # tables that only studies with conversations have


class Source(Protocol):
    """Where results come from: a study's folder or a packed study."""

    arms: list[dict[str, Any]]  # arms.json

    def tables(self, names: Sequence[str]) -> dict[str, pd.DataFrame]: ...

    def run(self, name: str) -> Run: ...

    def last_metrics(self, name: str) -> pd.Series: ...

    def training(self, name: str) -> pd.DataFrame: ...


class StudyFolder:
    """Run folders of a study, and the report on them. Raises UserError for a missing file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arms = json.loads(self._existing("arms.json").read_text())

    def _existing(self, name: str) -> Path:
        if not (self.folder / name).is_file():
            raise UserError(
                f"folder={self.folder}: {Path(name).name} is missing; "
                "`python -m experiments.studies.run` writes it at the end of the study"
            )
        return self.folder / name

    def tables(self, names: Sequence[str]) -> dict[str, pd.DataFrame]:
        """Return tables of the report by name; those of turns have no rows where there are none."""
        import pandas as pd

        files = {name: f"report/{name}.csv" for name in names}
        left = {n: f for n, f in files.items() if n in OF_TURNS and not (self.folder / f).is_file()}
        return {
            name: pd.DataFrame() if name in left else pd.read_csv(self._existing(file))
            for name, file in files.items()
        }

    def run(self, name: str) -> Run:
        """Return a run by the name of its folder. Raises RunError."""
        from analysis.runs import load_run

        return load_run(self.folder / name)

    def last_metrics(self, name: str) -> pd.Series:
        """Return the last row of a run's metrics."""
        import pandas as pd

        return pd.read_parquet(self.folder / name / "metrics.parquet").iloc[-1]

    def training(self, name: str) -> pd.DataFrame:
        """Return what a run recorded at each step."""
        import pandas as pd

        return pd.read_parquet(self.folder / name / "metrics.parquet")


class CountedStudy(PackedStudy):
    """A packed study, and the report's tables computed from its counts."""

    def tables(self, names: Sequence[str]) -> dict[str, pd.DataFrame]:
        """Return tables of the report by name, with the metrics that follow from counts.

        They are written as CSV and read again, as those of a report are.
        """
        import pandas as pd

        computed = report_tables(list(self.runs.values()))
        texts = (computed[name].assign(experiment="").to_csv(index=False) for name in names)
        return {name: pd.read_csv(io.StringIO(t)) for name, t in zip(names, texts, strict=True)}

    def last_metrics(self, name: str) -> pd.Series:
        """Return the last row of a run's metrics."""
        return self.run(name).metrics.iloc[-1]


def report_tables(runs: Sequence[Run]) -> dict[str, pd.DataFrame]:
    """Return the report's tables that a study's page is written from, by name."""
    from analysis import budgets as equal_budget
    from analysis import comparisons as differences
    from analysis import comparisons as letters
    from analysis import tables
    from analysis.comparisons import contrast_table
    from analysis.experiment import Experiment
    from analysis.groups import group_runs
    from analysis.models import common_ks, evaluated_models
    from analysis.runs import contrasts_of
    from analysis.saturation import curve_fits, fit_table
    from analysis.turns import turn_tables

    groups = group_runs(runs)
    ks, notes = common_ks(runs)
    models = evaluated_models(groups, ks)
    experiment = Experiment("", groups, ks, models, notes, named_contrasts=contrasts_of(runs))
    return {
        "table": tables.result_table(models),
        "differences": differences.difference_table(experiment.pairs),
        "contrasts": contrast_table(experiment.contrasts),
        "letters": letters.letter_table(experiment.trained, experiment.pairs),
        "runs": tables.run_table(groups),
        "costs": tables.cost_table(groups),
        "equal_budget": equal_budget.equal_budget_tables(groups, ks)[0],
        "curve_fits": fit_table(curve_fits(groups, ks)),
        **{name.removesuffix(".csv"): t for name, t in turn_tables(models, groups, ks).items()},
    }


class Results:
    """The results of a study's folder, or of a packed study, by arm.

    Raises UserError for a folder without a file of a study, RunError for a damaged packed study.
    """

    def __init__(self, folder: Path) -> None:
        self.source: Source = CountedStudy(folder) if is_packed(folder) else StudyFolder(folder)
        self.arms, tables = self.source.arms, self.source.tables((*TABLES, *OF_TURNS))
        # By the runs' names, which are unique in a study: its folder may have moved since, or be
        # read from another working directory.
        groups = dict(zip(map(_name, tables["runs"]["path"]), tables["runs"]["group"], strict=True))
        self.label = {
            run["arm"]: group
            for run in self.arms
            if run["run"] and not run["trial"] and (group := groups.get(_name(run["run"])))
        }
        self.table: pd.DataFrame = tables["table"].set_index("label")
        self._differences = {
            (row["a"], row["b"], row["metric"]): (row["difference"], row["low"], row["high"])
            for name in ("differences", "turn_differences")
            for row in tables[name].to_dict("records")
        }
        # (label, metric of conversations) → its row of turns.csv; of a base model before training
        self.turns = {
            (row["label"], row["metric"]): row for row in tables["turns"].to_dict("records")
        }
        self._letters = {
            (row["label"], row["metric"]): str(row["letters"])
            for row in tables["letters"].to_dict("records")
        }
        self.contrasts = tables["contrasts"]
        self.runs, self.equal_budget = tables["runs"], tables["equal_budget"]
        self.curve_fits = tables["curve_fits"]
        costs = tables["costs"].set_index("label")
        self.costs = costs.join(self.table.drop(columns=costs.columns, errors="ignore"))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The main metrics of a page: pass@1, pass@k of the greatest k, and distinct_of_5."""
        names = map(str, self.table)
        ks = [int(name[5:]) for name in names if re.fullmatch(r"pass@\d+", name)]
        return (*dict.fromkeys(("pass@1", f"pass@{max(ks, default=1)}")), "distinct_of_5")

    def difference(self, a: str, b: str, metric: str) -> tuple[float, float, float] | None:
        """a − b with its interval; for time and memory paired over seeds."""
        if metric in LESS:
            return self._cost_difference(a, b, metric)
        return self._differences.get((self.label.get(a), self.label.get(b), metric))

    def corrected(self, a: str, b: str, metric: str, margin: float = 0.0) -> str:
        """above | below | not decided: a − b against -margin, corrected over the contrasts."""
        arms = (self.label.get(a), self.label.get(b))
        opposite = {"above": "below", "below": "above"}
        for row in self.contrasts.to_dict("records"):
            if (row["metric"], row["margin"]) == (metric, margin):
                if (row["a"], row["b"]) == arms:
                    return str(row["answer"])
                if (row["b"], row["a"]) == arms and not margin:
                    return opposite.get(row["answer"], str(row["answer"]))
        return "not decided"

    def _cost_difference(self, a: str, b: str, metric: str) -> tuple[float, float, float] | None:
        """Student's interval of the paired differences over seeds."""
        import numpy as np
        from scipy import stats

        first, second = self._costs(a, metric), self._costs(b, metric)
        gaps = np.array(
            [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
        )
        if len(gaps) < 2:
            return None
        half = stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / len(gaps) ** 0.5
        return float(gaps.mean()), float(gaps.mean() - half), float(gaps.mean() + half)

    def _costs(self, arm: str, metric: str) -> dict[int, float]:
        """Time without evaluations, or peak memory, of each finished seed."""
        costs = {}
        for run in self.arms:
            if run["arm"] == arm and run["status"] == "finished" and not run["trial"]:
                last = self.source.last_metrics(_name(run["run"]))
                time = last["time/total_s"] - last["time/evaluate_s"]
                costs[run["seed"]] = float(time if metric == "time" else last["memory/peak_mb"])
        return costs

    def in_second_half(self, arm: str, column: str) -> list[float]:
        """The mean of a column of metrics.parquet over the second half of each seed's steps.

        Steps without a value do not count; a run without any has no mean.
        """
        means = []
        for run in self.arms:
            if run["arm"] == arm and run["status"] == "finished" and not run["trial"]:
                steps = self.source.training(_name(run["run"]))
                late = steps.loc[steps["step"] * 2 > steps["step"].max()]
                if column in late and late[column].notna().any():
                    means.append(float(late[column].mean()))
        return means

    def fitted(self, arm: str, metric: str, axis: str) -> dict[str, Any] | None:
        """The row of curve_fits.csv; None if the arm has too few evaluations."""
        fits = self.curve_fits
        chosen = (fits["axis"] == axis) & (fits["metric"] == metric)
        rows = fits[chosen & (fits["label"] == self.label.get(arm))].to_dict("records")
        return {str(key): value for key, value in rows[0].items()} if rows else None

    def letters(self, arm: str, metric: str) -> str:
        """The arm's letters, or –; two arms are separated if they share none."""
        return self._letters.get((self.label.get(arm), metric), "–")

    def row(self, label: str | None) -> dict[Any, Any] | None:
        """The row of table.csv."""
        return dict(self.table.loc[label]) if label in self.table.index else None

    def costs_row(self, label: str | None) -> dict[Any, Any] | None:
        """The row of costs.csv, with what only table.csv has."""
        return dict(self.costs.loc[label]) if label in self.costs.index else None

    @property
    def bases(self) -> dict[str, str]:
        """The base models: short name → label in the report."""
        labels = [str(label) for label in self.table.index if str(label).startswith("base")]
        return {re.sub(r" path=\S+", "", x).replace(" name=", " "): x for x in labels}


def _name(path: str) -> str:
    return Path(path).name
