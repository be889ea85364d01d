"""Time and disk of runs before they start, by finished runs of their task, model and engine.

Seconds are scaled by the responses that are trained on, and by those of evaluations. Loading is not
among them. Disk is that of the other run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.preflight import resolve_defaults
from experiments.config.schema import RunConfig

Config = dict[str, Any]  # as in config.yaml


class Measured(NamedTuple):
    """What a finished run took."""

    config: Config
    train_s: float  # for each response
    evaluate_s: float
    mb: float


def expected(configs: Sequence[RunConfig]) -> list[tuple[float, float] | None]:
    """Return (seconds, MB) of each run, or None if no finished run in its output_dir is like it.

    The newest one counts, of the same algorithm where there is one.
    """
    from experiments.policy.loading import pick_device

    runs = {config.output_dir: list[Measured]() for config in configs}
    for output_dir, measured in runs.items():
        files = [*Path(output_dir).glob("*/*/run.json")]
        for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
            with suppress(OSError, ValueError, LookupError, TypeError, ZeroDivisionError):
                measured.append(_measure(file.parent))
    found: list[tuple[float, float] | None] = []
    for config in configs:
        job = asdict(resolve_defaults(config, str(pick_device(config.model.device))))
        like = [one for one in runs[config.output_dir] if _kind(one.config) == _kind(job)]
        like.sort(key=lambda one: one.config["algo"]["name"] != config.algo.name)
        trained, evaluated = _responses(job, config.steps > 0)
        times = [one.train_s * trained + one.evaluate_s * evaluated for one in like[:1]]
        found.append((times[0], like[0].mb) if like else None)
    return found


def _measure(folder: Path) -> Measured:
    """Read a run folder. Raises ValueError, LookupError or OSError unless the run has finished."""
    import pandas as pd

    from analysis.runs import parse_yaml

    if json.loads((folder / "run.json").read_text())["status"] != "finished":
        raise ValueError("unfinished")
    config, columns = parse_yaml((folder / "config.yaml").read_text()), ["total", "evaluate"]
    times = pd.read_parquet(folder / "metrics.parquet", columns=[f"time/{c}_s" for c in columns])
    total, evaluating = times.iloc[-1]  # before the last evaluation
    trained, evaluated = _responses(config, last=False)
    mb = sum(file.stat().st_size for file in folder.rglob("*")) / 1e6
    return Measured(config, (total - evaluating) / trained, evaluating / evaluated, mb)


def _responses(config: Config, last: bool) -> tuple[int, int]:
    """Return the responses trained on, and those to a problem in all evaluations.

    `last`: with the last evaluation.
    """
    steps, every, train = config["steps"], config["eval"]["every"], config["train"]
    evaluations = 1 + (max(steps - 1, 0) // every if every else 0) + last
    trained = steps * train["prompts"] * train["group_size"]
    return trained, evaluations * config["eval"]["samples"]


def _kind(job: Config) -> list[Any]:
    return [job["task"], job["model"], job["engine"]["name"], job["eval"]["split"]]
