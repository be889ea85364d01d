"""A packed study: the counts that its page follows from, small enough for the repository.

    arms.json        as in the study's folder, runs by name
    contrasts.json   the pairs that the study names
    NAME.yaml        the study
    counts.parquet   a row per run, evaluation and problem: step, temperature, main (whether it is
                     eval.temperature), and `analysis.metrics.sample_counts.COLUMNS`
    runs.parquet     a row per run: run, arm, seed, config (config.yaml), info (run.json)
    metrics.parquet  rows of the runs' metrics.parquet at evaluated steps: budget, time, memory
    training.parquet all rows of the columns that a report draws as training curves, as float32
    SHA256SUMS       of the files above, for `sha256sum -c`
    sentences.yaml   by hand: sentences of pages whose numbers `python -m experiments.studies.check`
                     recomputes

The tables are computed by `analysis`, as those of a report of run folders, from samples that stand
for the counts.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from analysis.load.run_folders import Run

COUNTS, RUNS, METRICS = "counts.parquet", "runs.parquet", "metrics.parquet"
TRAINING = "training.parquet"  # studies packed before it was introduced have none
ARMS, CONTRASTS = "arms.json", "contrasts.json"
SUMS, SENTENCES = "SHA256SUMS", "sentences.yaml"


def is_packed(folder: Path) -> bool:
    """Whether a folder holds a packed study, not run folders; also if a file of it is missing."""
    return (folder / COUNTS).is_file() or (folder / SUMS).is_file()


class PackedStudy:
    """Runs and report tables of a packed study. Raises UserError for a missing file."""

    def __init__(self, folder: Path) -> None:
        import pandas as pd

        self.folder = folder
        try:
            self.arms: list[dict[str, Any]] = json.loads((folder / ARMS).read_text())
            self._counts, self._runs, self._metrics = (
                pd.read_parquet(folder / name) for name in (COUNTS, RUNS, METRICS)
            )
        except OSError as error:
            raise UserError(f"{folder}: {error}; pack the study again") from error

    @cached_property
    def runs(self) -> dict[str, Run]:
        """Run name → the run, with samples that stand for its counts; sorted by name."""
        counts, metrics = (
            {str(name): rows.drop(columns="run") for name, rows in table.groupby("run")}
            for table in (self._counts, self._metrics)
        )
        rows = {str(row["run"]): row for row in self._runs.to_dict("records")}
        return {name: self._run(rows[name], counts[name], metrics[name]) for name in sorted(rows)}

    def _run(self, row: dict[Any, Any], counts: pd.DataFrame, metrics: pd.DataFrame) -> Run:
        import yaml

        from analysis.load.run_folders import Run
        from analysis.metrics.sample_counts import stand_in_samples

        further = counts[~counts["main"]].groupby("temperature")
        return Run(
            path=(self.folder / row["run"]).resolve(),
            config=yaml.load(row["config"], getattr(yaml, "CSafeLoader", yaml.SafeLoader)),
            info=json.loads(row["info"]),
            metrics=metrics.dropna(axis="columns", how="all").reset_index(drop=True),
            evals=stand_in_samples(counts[counts["main"]]),
            further_evals={float(t): stand_in_samples(c) for t, c in further},  # type: ignore[arg-type]
        )

    def run(self, name: str) -> Run:
        """Return a run by its name. Raises RunError as `load_run` for one that is not packed."""
        from analysis.load.run_folders import RunError

        try:
            return self.runs[name]
        except KeyError:
            raise RunError(f"{self.folder}: {name} is not in {RUNS}") from None

    def last_metrics(self, name: str) -> pd.Series:
        """Return the last row of a run's metrics."""
        return self.run(name).metrics.iloc[-1]

    def training(self, name: str) -> pd.DataFrame:
        """Return what a run recorded at each step: `step` and the columns of training curves."""
        return self._training[self._training["run"] == name].drop(columns="run")

    @cached_property
    def _training(self) -> pd.DataFrame:
        import pandas as pd

        try:
            return pd.read_parquet(self.folder / TRAINING)
        except OSError as error:
            raise UserError(
                f"{self.folder}: {TRAINING} is missing; pack the study again"
            ) from error

    def tables(self, names: Sequence[str]) -> dict[str, pd.DataFrame]:
        """Return tables of the report by name, with the metrics that follow from counts.

        They are written as CSV and read again, as those of a report are.
        """
        import pandas as pd

        computed = report_tables(list(self.runs.values()))
        texts = (computed[name].assign(experiment="").to_csv(index=False) for name in names)
        return {name: pd.read_csv(io.StringIO(t)) for name, t in zip(names, texts, strict=True)}


def report_tables(runs: Sequence[Run]) -> dict[str, pd.DataFrame]:
    """Return the report's tables that a study's page is written from, by name."""
    from analysis.load.groups import group_runs
    from analysis.load.run_folders import contrasts_of
    from analysis.metrics.evaluated_models import common_ks, evaluated_models
    from analysis.metrics.sample_counts import is_counted
    from analysis.report.experiment import Experiment
    from analysis.stats import differences, equal_budget, letters, tables
    from analysis.stats.named_pairs import contrast_table

    groups = group_runs(runs)
    ks, notes = common_ks(runs)
    models = [
        replace(
            model,
            scores=[{name: s for name, s in of.items() if is_counted(name)} for of in model.scores],
        )
        for model in evaluated_models(groups, ks)
    ]
    experiment = Experiment("", groups, ks, models, notes, named_contrasts=contrasts_of(runs))
    return {
        "table": tables.result_table(models),
        "differences": differences.difference_table(experiment.pairs),
        "contrasts": contrast_table(experiment.contrasts),
        "letters": letters.letter_table(experiment.trained, experiment.pairs),
        "runs": tables.run_table(groups),
        "costs": tables.cost_table(groups),
        "equal_budget": equal_budget.equal_budget_tables(groups, ks)[0],
    }


def sums(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """Return file → SHA-256, for those of the files that are there."""
    return {
        file: hashlib.sha256((folder / file).read_bytes()).hexdigest()
        for file in files
        if (folder / file).is_file()
    }


def changed_files(folder: Path) -> list[str]:
    """Return the files of a packed study that are not those of its SHA256SUMS."""
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except OSError:
        return [SUMS]
    recorded = {file: digest for digest, _, file in (line.partition("  ") for line in lines)}
    expected = {COUNTS, RUNS, METRICS, ARMS, CONTRASTS, study_file(folder).name}
    now = sums(folder, recorded)
    return sorted(f for f in recorded.keys() | expected if recorded.get(f, "") != now.get(f))


def study_file(folder: Path) -> Path:
    """Return the study's YAML in a packed study. Raises UserError if it is not exactly one."""
    files = [file for file in sorted(folder.glob("*.yaml")) if file.name != SENTENCES]
    if len(files) != 1:
        raise UserError(f"{folder}: {len(files)} studies (*.yaml) in place of one; pack it again")
    return files[0]
