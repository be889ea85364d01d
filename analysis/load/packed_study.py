"""A packed study: the counts that its page and its report follow from, for the repository.

    arms.json        as in the study's folder, runs by name
    contrasts.json   the pairs that the study names
    NAME.yaml        the study
    counts.parquet   a row per run, evaluation and problem: step, temperature, main (whether it is
                     eval.temperature), and `analysis.metrics.sample_counts.COLUMNS`
    runs.parquet     a row per run: run, arm, seed, config (config.yaml), info (run.json)
    metrics.parquet  rows of the runs' metrics.parquet at evaluated steps: budget, time, memory
    training.parquet all rows of the columns that a report draws as training curves, as float32
    turns.parquet    a row per run, evaluation and problem, `analysis.turns.counts.COLUMNS`: only of
                     studies with conversations of several turns
    SHA256SUMS       of the files above, for `sha256sum -c`
    sentences.yaml   by hand: sentences of pages whose numbers `python -m experiments.studies.check`
                     recomputes

`experiments.studies.pack` writes it. Its runs have samples that stand for the counts
(`analysis.load.stand_in_samples`), from which a report computes what it computes from run folders.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.load.run_folders import COUNTS, SUMS, Run, RunError, first_line, parse_yaml
from analysis.load.stand_in_samples import stand_in_samples

if TYPE_CHECKING:
    import pandas as pd

RUNS, METRICS = "runs.parquet", "metrics.parquet"
TRAINING = "training.parquet"  # studies packed before it was introduced have none
TURNS = "turns.parquet"
ARMS, CONTRASTS = "arms.json", "contrasts.json"
SENTENCES = "sentences.yaml"
RECORDED_EVERY_STEP = ("reward_mean", "kl_ref")  # in METRICS at evaluated steps, else in TRAINING


class PackedStudy:
    """Runs of a packed study, and what it names for its report.

    Raises RunError if a file is missing, unreadable or not that of SHA256SUMS.
    """

    def __init__(self, folder: Path) -> None:
        import pandas as pd
        import pyarrow as pa

        check_files(folder)
        self.folder = folder
        try:
            self.arms: list[dict[str, Any]] = json.loads((folder / ARMS).read_text())
            self._counts, self._runs, self._metrics = (
                pd.read_parquet(folder / name) for name in (COUNTS, RUNS, METRICS)
            )
            has_training = (folder / TRAINING).is_file()
            self._training = pd.read_parquet(folder / TRAINING) if has_training else None
            has_turns = (folder / TURNS).is_file()
            self._turns = pd.read_parquet(folder / TURNS) if has_turns else None
            study = parse_yaml(study_file(folder).read_text(encoding="utf-8"))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise RunError(f"{folder}: {first_line(error)}; pack the study again") from error
        # a difference in pass@k up to which two arms are equal; an arm that the others are compared
        # with
        self.margin: float | None = study.get("margin")
        self.control: str | None = study.get("control")

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
        further = counts[~counts["main"]].groupby("temperature")
        metrics = self._with_training(row["run"], metrics.dropna(axis="columns", how="all"))
        return Run(
            path=(self.folder / row["run"]).resolve(),
            config=parse_yaml(row["config"]),
            info=json.loads(row["info"]),
            metrics=metrics.reset_index(drop=True),
            evals=stand_in_samples(counts[counts["main"]]),
            further_evals={float(t): stand_in_samples(c) for t, c in further},  # type: ignore[arg-type]
            packed=True,
            turns=self._turns_of(row["run"]),
        )

    def _turns_of(self, name: str) -> pd.DataFrame | None:
        if self._turns is None:
            return None
        return self._turns[self._turns["run"] == name].drop(columns="run")

    def _with_training(self, name: str, spent: pd.DataFrame) -> pd.DataFrame:
        """Return metrics with a row per step, NaN where nothing was packed.

        Without training curves they have rows at evaluated steps, and no rewards: a mean over a
        window of steps does not follow from these.
        """
        if self._training is None:
            spent = spent.drop(columns=list(RECORDED_EVERY_STEP), errors="ignore")
            return spent.assign(reward_mean=float("nan"))
        training = self.training(name)
        # each run recorded a reward, NaN where no response was its own; others not every column
        recorded = training.columns[training.notna().any() | (training.columns == "reward_mean")]
        training = training[recorded]
        others = [column for column in spent if column == "step" or column not in training]
        return training.merge(spent[others], how="outer", on="step", sort=True)

    def run(self, name: str) -> Run:
        """Return a run by its name. Raises RunError as `load_run` for one that is not packed."""
        try:
            return self.runs[name]
        except KeyError:
            raise RunError(f"{self.folder}: {name} is not in {RUNS}") from None

    def training(self, name: str) -> pd.DataFrame:
        """Return what a run recorded at each step: `step` and the columns of training curves.

        Raises RunError for a study that was packed without them.
        """
        if self._training is None:
            raise RunError(f"{self.folder}: {TRAINING} is missing; pack the study again")
        return self._training[self._training["run"] == name].drop(columns="run")


def experiment_of_packed(folder: Path) -> str:
    """Return the `name` in the configuration of a packed study's runs, else that of its folder."""
    import pandas as pd
    import pyarrow as pa

    try:
        configs = pd.read_parquet(folder / RUNS, columns=["config"])["config"]
        return str(parse_yaml(configs.iloc[0])["name"])
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException):
        return folder.name


# Files and their digests.


def sums(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """Return file → SHA-256, for those of the files that are there."""
    return {
        file: hashlib.sha256((folder / file).read_bytes()).hexdigest()
        for file in files
        if (folder / file).is_file()
    }


def changed_files(folder: Path) -> list[str]:
    """Return the files of a packed study that are not those of its SHA256SUMS.

    Raises RunError as `study_file`.
    """
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except OSError:
        return [SUMS]
    recorded = {file: digest for digest, _, file in (line.partition("  ") for line in lines)}
    expected = {COUNTS, RUNS, METRICS, ARMS, CONTRASTS, study_file(folder).name}
    now = sums(folder, recorded)
    return sorted(f for f in recorded.keys() | expected if recorded.get(f, "") != now.get(f))


def check_files(folder: Path) -> None:
    """Raise RunError for a packed study with missing or changed files."""
    faults = [
        f"{file} is not that of {SUMS}" if (folder / file).is_file() else f"{file} is missing"
        for file in changed_files(folder)
    ]
    if faults:
        raise RunError(
            f"{folder}: damaged packed study, {', '.join(faults)}; check the folder out again, or "
            "pack the study again"
        )


def study_file(folder: Path) -> Path:
    """Return the study's YAML in a packed study. Raises RunError if it is not exactly one."""
    files = [file for file in sorted(folder.glob("*.yaml")) if file.name != SENTENCES]
    if len(files) != 1:
        raise RunError(f"{folder}: {len(files)} studies (*.yaml) in place of one; pack it again")
    return files[0]
