"""Files of tuning: the search spaces in conf/algo/_search/, the trial table, the winner."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from envs.config_parsing import parse_values
from experiments.config.composition import CONF
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.studies.study import HERE, Study

if TYPE_CHECKING:
    from optuna.trial import Trial

FOLDER = CONF / "algo" / "_search"


@dataclass
class Range:
    """The values of one key: between low and high, or one of the choices."""

    low: float | None = None
    high: float | None = None
    log: bool = False  # sample the logarithm uniformly
    choices: list[Any] | None = None

    def check(self, key: str) -> None:
        """Raise UserError unless this is a range or a choice."""
        low, high = self.low, self.high
        bounded = low is not None and high is not None and low < high
        positive = low is not None and low > 0
        if bounded == bool(self.choices) or (self.log and not (bounded and positive)):
            raise UserError(
                f"{key}: give low and high, low below high (and above 0 with log), or choices"
            )


Space = Mapping[str, Range]  # by key


def read_space(algo: str) -> dict[str, Range]:
    """The search space of an algorithm; the default one if it has no file. Raises UserError."""
    file = FOLDER / f"{algo}.yaml"
    file = file if file.is_file() else FOLDER / "_default.yaml"
    space = {}
    for key, values in yaml.safe_load(file.read_text()).items():
        try:
            space[key] = parse_values(Range, values, key)
        except ValueError as error:
            raise UserError(f"{file.name}: {error}") from error
        space[key].check(f"{file.name}: {key}")
    return space


def suggest(trial: Trial, space: Space) -> list[str]:
    """The trial's values as overrides. Values that it already has stay."""
    overrides = []
    for key, values in space.items():
        if values.choices:
            overrides.append(f"{key}={trial.suggest_categorical(key, values.choices)}")
            continue
        assert values.low is not None and values.high is not None
        number = trial.suggest_float(key, values.low, values.high, log=values.log)
        # In four digits: the run has the value of the table and of the experiment file.
        overrides.append(f"{key}={number:.4g}")
    return overrides


def write_results(
    study_name: str,
    arm: str,
    study: Study,
    config: RunConfig,
    rows: Sequence[Mapping[str, Any]],
    space: Space,
) -> str:
    """Write the trial table and the winner's experiment file; returns a summary.

    They go to this package and conf/experiment/; for a study given by path, beside its file.
    """
    stem = Path(study_name).stem
    by_path = study_name.endswith((".yaml", ".yml"))
    folder = (Path(study_name).parent if by_path else HERE) / "tuned"
    folder.mkdir(exist_ok=True)
    table = folder / f"{stem}-{arm}.csv"
    with table.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    complete = [row for row in rows if row["state"] == "complete"]
    if not complete:
        return f"{len(rows)} trials, none finished: {table}"
    best = max(complete, key=lambda row: row["pass@1"])
    file = (folder if by_path else CONF / "experiment") / f"tuned_{stem}_{arm}.yaml"
    file.write_text(_experiment(stem, arm, study, config, best, len(rows), space))
    values = " ".join(f"{key}={best[key]:g}" for key in space)
    return f"best of {len(rows)} trials: {values}, pass@1 {best['pass@1']:.3f}\n{table}\n{file}"


def _experiment(
    stem: str,
    arm: str,
    study: Study,
    config: RunConfig,
    best: Mapping[str, Any],
    trials: int,
    space: Space,
) -> str:
    """An experiment file: the arm with the winning values, and how they were found."""
    assert study.tuning is not None
    pairs = [override.partition("=")[::2] for override in study.arms[arm].overrides]
    own = {key: yaml.safe_load(value) for key, value in pairs if "." in key}
    values = _nested(own | {key: best[key] for key in space})
    how = f"{trials} trials ({' '.join(study.tuning.overrides)}), table tuned/{stem}-{arm}.csv"
    return (
        "# @package _global_\n"
        f"# python run.py experiment=tuned_{stem}_{arm}\n"
        f"# The best of {trials} trials of `python -m experiments.studies.tune study={stem} "
        f"algo={arm}`:\n"
        f"# pass@1 {best['pass@1']:.4f} on the tune split.\n"
        f"defaults:\n  - override /algo: {config.algo.name}\n"
        + yaml.safe_dump({"name": f"tuned_{stem}", "tuned": how, **values}, sort_keys=False)
    )


def _nested(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """{"a.b": 1} → {"a": {"b": 1}}."""
    values: dict[str, Any] = {}
    for key, value in dotted.items():
        group = values
        *parents, last = key.split(".")
        for parent in parents:
            group = group.setdefault(parent, {})
        group[last] = value
    return values
