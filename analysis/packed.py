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

`analysis.results` writes it. Its runs have samples that stand for the counts
(`analysis.load.stand_in_samples`), from which a report computes what it computes from run folders.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from analysis.metrics import DISTINCT, DISTINCT_ACCEPTED, without_temperature
from analysis.normal_form import normal_form
from analysis.runs import COUNTS, SUMS, Run, RunError, first_line, parse_yaml

RUNS, METRICS = "runs.parquet", "metrics.parquet"
TRAINING = "training.parquet"  # studies packed before it was introduced have none
TURNS = "turns.parquet"
ARMS, CONTRASTS = "arms.json", "contrasts.json"
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
    files = sorted(folder.glob("*.yaml"))
    if len(files) != 1:
        raise RunError(f"{folder}: {len(files)} studies (*.yaml) in place of one; pack it again")
    return files[0]


UNPARSABLE = "("  # stands for an accepted program that has no normal form


def stand_in_samples(counts: pd.DataFrame) -> pd.DataFrame:
    """Return samples that have the counts, with columns step, problem, sample, verdict, program.

    The programs of class i are the constant i: constants have different normal forms, and a single
    token has no pair of tokens for distinct-2. Raises ValueError for counts that no samples have.
    """
    import numpy as np
    import pandas as pd

    columns = (counts[name] for name in ("samples", "judged", "accepted", "forms"))
    cells = [_cell(*numbers) for numbers in zip(*columns, strict=True)]
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
def _cell(samples: int, judged: int, accepted: int, forms: str) -> list[tuple[str, str]]:
    """Return (verdict, program) of each sample of a problem; the cells of a study repeat."""
    return list(_samples(samples, judged, accepted, [int(size) for size in forms.split()]))


def _samples(
    samples: int, judged: int, accepted: int, sizes: list[int]
) -> Iterator[tuple[str, str]]:
    if not 0 <= sum(sizes) <= accepted <= judged <= samples or min(sizes, default=1) < 1:
        raise ValueError(f"{samples} samples, {judged} judged, {accepted} accepted, forms {sizes}")
    for number, size in enumerate(sizes):
        yield from [("ACCEPTED", str(number))] * size
    yield from [("ACCEPTED", UNPARSABLE)] * (accepted - sum(sizes))
    yield from [("WRONG_ANSWER", "")] * (judged - accepted)
    yield from [("INFRA_ERROR", "")] * (samples - judged)


COLUMNS = ("step", "problem", "samples", "judged", "accepted", "forms", "tokens")
Score = TypeVar("Score")


@dataclass
class _Counts:
    """The counts of one problem in one evaluation."""

    samples: int = 0
    judged: int = 0  # without INFRA_ERROR
    accepted: int = 0
    tokens: int = 0  # of judged samples
    forms: Counter[str] = field(default_factory=Counter)  # of accepted programs


def mean_count(mean: float) -> str:
    """Return a mean of counts: whole as it is, else with one decimal."""
    return f"{mean:,.0f}" if mean == round(mean) else f"{mean:,.1f}"


def is_counted(metric: str) -> bool:
    """Return whether a metric, at whatever temperature, follows from the counts."""
    main = without_temperature(metric)
    return main.startswith(("pass@", DISTINCT_ACCEPTED)) or main in (DISTINCT, "distinct_ratio")


def counted(scores: Mapping[str, Score]) -> dict[str, Score]:
    """Return those of a run's scores, by metric, that follow from the counts."""
    return {metric: score for metric, score in scores.items() if is_counted(metric)}


def count_samples(evals: pd.DataFrame) -> pd.DataFrame:
    """Return COLUMNS of evaluation samples: a row for each step and problem.

    `forms`: the sizes of the classes of equal normal forms among accepted programs, in the order of
    their first appearance, as "12 3 1"; programs that cannot be parsed are in none.
    """
    cells: dict[tuple[int, str], _Counts] = {}
    columns = (evals[name] for name in ("step", "problem", "verdict", "program", "tokens"))
    for step, problem, verdict, program, tokens in zip(*columns, strict=True):
        cell = cells.setdefault((step, problem), _Counts())
        cell.samples += 1
        if verdict == "INFRA_ERROR":
            continue
        cell.judged += 1
        cell.tokens += int(tokens)
        if verdict == "ACCEPTED":
            cell.accepted += 1
            if (form := normal_form(program)) is not None:
                cell.forms[form] += 1
    rows = [
        (*key, c.samples, c.judged, c.accepted, " ".join(map(str, c.forms.values())), c.tokens)
        for key, c in cells.items()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))
