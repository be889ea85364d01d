"""A packed study: the counts that its page and its report follow from, for the repository.

    arms.json        as in the study's folder, runs by name
    contrasts.json   the pairs that the study names
    NAME.yaml        the study
    counts.parquet   a row per run, evaluation and problem: step, temperature, main (whether it is
                     eval.temperature), and `COLUMNS`
    runs.parquet     a row per run: run, arm, seed, config (config.yaml), info (run.json)
    metrics.parquet  rows of the runs' metrics.parquet at evaluated steps: budget, time, memory
    training.parquet all rows of the columns that a report draws as training curves, as float32
    turns.parquet    a row per run, evaluation and problem, COLUMNS of `analysis.conversations`, of
                     studies with conversations of several turns
    SHA256SUMS       of the files above, for `sha256sum -c`

`analysis.results` writes it. Its runs have samples that stand for the counts, from which a report
computes what it computes from run folders.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import yaml

from analysis.metrics import DISTINCT, DISTINCT_ACCEPTED, without_temperature
from analysis.normal_form import normal_form
from analysis.runs import COUNTS, SUMS, Run, RunError, first_line, parse_yaml

RUNS, METRICS = "runs.parquet", "metrics.parquet"
TRAINING, TURNS = "training.parquet", "turns.parquet"
ARMS, CONTRASTS = "arms.json", "contrasts.json"
COLUMNS = ("step", "problem", "samples", "judged", "accepted", "forms", "tokens")
UNPARSABLE = "("  # stands for an accepted program that has no normal form


class PackedStudy:
    """Runs of a packed study, and what it names for its report.

    `margin`: a difference in pass@k up to which two arms are equal; `control`: an arm that the
    others are compared with. Raises RunError if a file is missing, unreadable or not that of
    SHA256SUMS.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if changed := changed_files(folder):
            raise RunError(
                f"{folder}: damaged packed study, {', '.join(changed)} missing or not of {SUMS}; "
                "check the folder out again, or pack the study again"
            )
        try:
            self.arms: list[dict[str, Any]] = json.loads((folder / ARMS).read_text())
            self._counts, self._runs, self._metrics, self._training = (
                pd.read_parquet(folder / name) for name in (COUNTS, RUNS, METRICS, TRAINING)
            )
            has_turns = (folder / TURNS).is_file()
            self._turns = pd.read_parquet(folder / TURNS) if has_turns else None
            study = parse_yaml(study_file(folder).read_text(encoding="utf-8"))
        except (OSError, ValueError, pa.ArrowException, yaml.YAMLError) as error:
            raise RunError(f"{folder}: {first_line(error)}; pack the study again") from error
        self.margin: float | None = study.get("margin")
        self.control: str | None = study.get("control")

    @cached_property
    def runs(self) -> dict[str, Run]:
        """Run name → the run, with samples that stand for its counts; sorted by name."""
        rows = {str(row["run"]): row for row in self._runs.to_dict("records")}
        return {name: self._run(name, rows[name]) for name in sorted(rows)}

    def _run(self, name: str, row: dict[Any, Any]) -> Run:
        counts = self._counts[self._counts["run"] == name]
        further = counts[~counts["main"]].groupby("temperature")
        spent = _of_run(self._metrics, name).dropna(axis="columns", how="all")
        training = self.training(name)
        # Each run recorded a reward, NaN where no response was its own; others not every column.
        recorded = training.columns[training.notna().any() | (training.columns == "reward_mean")]
        others = [column for column in spent if column == "step" or column not in recorded]
        metrics = training[recorded].merge(spent[others], how="outer", on="step", sort=True)
        return Run(
            path=(self.folder / name).resolve(),
            config=parse_yaml(row["config"]),
            info=json.loads(row["info"]),
            metrics=metrics.reset_index(drop=True),
            evals=stand_in_samples(counts[counts["main"]]),
            further_evals={float(t): stand_in_samples(c) for t, c in further},  # type: ignore[arg-type]
            packed=True,
            turns=None if self._turns is None else _of_run(self._turns, name),
        )

    def run(self, name: str) -> Run:
        """Return a run by its name. Raises RunError as `load_run` for one that is not packed."""
        if name not in self.runs:
            raise RunError(f"{self.folder}: {name} is not in {RUNS}")
        return self.runs[name]

    def training(self, name: str) -> pd.DataFrame:
        """Return what a run recorded at each step: `step` and the columns of training curves."""
        return _of_run(self._training, name)


def _of_run(table: pd.DataFrame, name: str) -> pd.DataFrame:
    return table[table["run"] == name].drop(columns="run")


def experiment_of_packed(folder: Path) -> str:
    """Return the `name` in the configuration of a packed study's runs, else that of its folder."""
    try:
        configs = pd.read_parquet(folder / RUNS, columns=["config"])["config"]
        return str(parse_yaml(configs.iloc[0])["name"])
    except (OSError, ValueError, LookupError, pa.ArrowException):
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
    if not (folder / SUMS).is_file():
        return [SUMS]
    lines = (folder / SUMS).read_text().splitlines()
    recorded = {file: digest for digest, _, file in (line.partition("  ") for line in lines)}
    expected = {COUNTS, RUNS, METRICS, TRAINING, ARMS, CONTRASTS, study_file(folder).name}
    now = sums(folder, recorded)
    return sorted(f for f in recorded.keys() | expected if recorded.get(f, "") != now.get(f))


def study_file(folder: Path) -> Path:
    """Return the study's YAML in a packed study. Raises RunError if it is not exactly one."""
    files = sorted(folder.glob("*.yaml"))
    if len(files) != 1:
        raise RunError(f"{folder}: {len(files)} studies (*.yaml) in place of one; pack it again")
    return files[0]


# Samples as counts, and back. pass@k and the metrics of distinct programs depend on an evaluation
# only through these numbers for each problem; programs, and metrics of their text, are lost.


def is_counted(metric: str) -> bool:
    """Return whether a metric, at whatever temperature, follows from the counts."""
    main = without_temperature(metric)
    return main.startswith(("pass@", DISTINCT_ACCEPTED)) or main in (DISTINCT, "distinct_ratio")


def count_samples(evals: pd.DataFrame) -> pd.DataFrame:
    """Return COLUMNS of evaluation samples: a row for each step and problem.

    `judged`: without INFRA_ERROR; `tokens`: of judged samples. `forms`: the sizes of the classes of
    equal normal forms among accepted programs, in the order of their first appearance, as
    "12 3 1"; programs that cannot be parsed are in none.
    """
    cells: dict[tuple[int, str], tuple[list[int], Counter[str]]] = {}
    columns = (evals[name] for name in ("step", "problem", "verdict", "program", "tokens"))
    for step, problem, verdict, program, tokens in zip(*columns, strict=True):
        numbers, forms = cells.setdefault((step, problem), ([0, 0, 0, 0], Counter()))
        judged, accepted = verdict != "INFRA_ERROR", verdict == "ACCEPTED"
        for i, more in enumerate((1, judged, accepted, int(tokens) * judged)):
            numbers[i] += more
        if accepted and (form := normal_form(program)) is not None:
            forms[form] += 1
    rows = [
        (*key, *numbers[:3], " ".join(map(str, forms.values())), numbers[3])
        for key, (numbers, forms) in cells.items()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def stand_in_samples(counts: pd.DataFrame) -> pd.DataFrame:
    """Return samples that have the counts, with columns step, problem, sample, verdict, program.

    The programs of class i are the constant i: constants have different normal forms, and a single
    token has no pair of tokens for distinct-2. Raises ValueError for counts that no samples have.
    """
    columns = (counts[name] for name in ("samples", "judged", "accepted", "forms"))
    cells = [_samples(*numbers) for numbers in zip(*columns, strict=True)]
    samples = counts["samples"].to_numpy()
    first = np.repeat(samples.cumsum() - samples, samples)  # of each sample's cell
    return pd.DataFrame(
        {
            "step": np.repeat(counts["step"].to_numpy(), samples),
            "problem": np.repeat(counts["problem"].to_numpy(object), samples),
            "sample": np.arange(samples.sum()) - first,
            "verdict": np.array([verdict for cell in cells for verdict, _ in cell], object),
            "program": np.array([program for cell in cells for _, program in cell], object),
        }
    )


@lru_cache(maxsize=1 << 14)
def _samples(samples: int, judged: int, accepted: int, forms: str) -> list[tuple[str, str]]:
    """Return (verdict, program) of each sample of a problem; the cells of a study repeat."""
    sizes = [int(size) for size in forms.split()]
    if not 0 <= sum(sizes) <= accepted <= judged <= samples or min(sizes, default=1) < 1:
        raise ValueError(f"{samples} samples, {judged} judged, {accepted} accepted, forms {sizes}")
    return [
        *(("ACCEPTED", str(number)) for number, size in enumerate(sizes) for _ in range(size)),
        *[("ACCEPTED", UNPARSABLE)] * (accepted - sum(sizes)),
        *[("WRONG_ANSWER", "")] * (judged - accepted),
        *[("INFRA_ERROR", "")] * (samples - judged),
    ]
