"""What is kept of a tuning: the table of its trials, and its winner as a named experiment."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from experiments.config.composition import CONF
from experiments.config.schema import RunConfig
from experiments.studies.search_space import Range
from experiments.studies.study import HERE, Study


def keep(
    study_name: str,
    arm: str,
    study: Study,
    config: RunConfig,
    rows: Sequence[Mapping[str, Any]],
    space: Mapping[str, Range],
) -> str:
    """Write both; returns what to say. A study of one's own keeps them beside its file."""
    stem = Path(study_name).stem
    own = study_name.endswith((".yaml", ".yml"))
    home = Path(study_name).parent if own else HERE
    table = home / "tuned" / f"{stem}-{arm}.csv"
    table.parent.mkdir(exist_ok=True)
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    ended = [row for row in rows if row["state"] == "complete"]
    if not ended:
        return f"{len(rows)} trials, none finished: {table}"
    best = max(ended, key=lambda row: row["pass@1"])
    file = (home / "tuned" if own else CONF / "experiment") / f"tuned_{stem}_{arm}.yaml"
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
    space: Mapping[str, Range],
) -> str:
    """An experiment file: the arm, the values that won, and how they were found."""
    pairs = [one.partition("=")[::2] for one in study.arms[arm].overrides]
    own = {key: yaml.safe_load(value) for key, value in pairs if "." in key}
    values = _nested(own | {key: best[key] for key in space})
    how = f"{trials} trials ({' '.join(study.tuning.overrides)}), table tuned/{stem}-{arm}.csv"
    return (
        "# @package _global_\n"
        f"# python run.py experiment=tuned_{stem}_{arm}\n"
        f"# The best of {trials} trials of `python -m experiments.studies.tune study={stem} "
        f"algo={arm}`:\n"
        f"# pass@1 {best['pass@1']:.4f} on the validation split.\n"
        f"defaults:\n  - override /algo: {config.algo.name}\n"
        + yaml.safe_dump({"name": f"tuned_{stem}", "tuned": how, **values}, sort_keys=False)
    )


def _nested(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """{"a.b": 1} → {"a": {"b": 1}}."""
    values: dict[str, Any] = {}
    for key, value in dotted.items():
        at = values
        *parents, last = key.split(".")
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = value
    return values
