"""Start a run: in this process, under its `runtime`, a stopped one again, or jobs under Slurm.

And say before the start what runs will take.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from experiments import errors
from experiments.config.composition import is_finished, resumed_config
from experiments.config.preflight import (
    check_before_start,
    resolve_defaults,
    set_ray_environment,
)
from experiments.config.schema import RunConfig
from experiments.errors import End
from experiments.run_dir.atomic_files import check_unlocked
from experiments.run_dir.interrupts import ignore_interrupts
from experiments.run_dir.provenance import changes


def torchrun_ranks() -> int:
    """Return the number of processes that torchrun started; 0: it did not start this one."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 0


def check_launch(config: RunConfig) -> None:
    """Raise UserError if the command that started this process does not fit `runtime`."""
    ranks = torchrun_ranks()
    if config.runtime.name == "torchrun" and not ranks:
        raise errors.UserError(
            "runtime=torchrun: start the run with torchrun: "
            "torchrun --nproc-per-node N run.py runtime=torchrun ..."
        )
    if ranks > int(os.environ.get("LOCAL_WORLD_SIZE", ranks)):
        raise errors.UserError(
            f"torchrun with {ranks} processes on several nodes: use a single node"
        )
    if ranks and config.runtime.name != "sync" and config.model.device != "auto":
        raise errors.UserError(
            f"model.device={config.model.device} under torchrun: each process uses its own "
            "GPU; use model.device=auto"
        )
    if config.runtime.name == "sync" and ranks > 1:
        raise errors.UserError(
            f"runtime=sync under torchrun with {ranks} processes would be {ranks} identical "
            "runs; add runtime=torchrun or runtime=ray"
        )


def train(config: RunConfig, folder: Path | None = None, in_sweep: bool = False) -> End | None:
    """Run a configuration, or resume the run in `folder`. Returns None on ranks other than 0."""
    check_launch(config)
    from experiments import trainer

    if config.runtime.name == "sync":
        return trainer.train(config, folder, in_sweep=in_sweep)
    if config.runtime.name == "ray" and torchrun_ranks() <= 1:
        set_ray_environment(config.runtime.address)  # which Ray reads as it is imported
        from experiments.runtime.ray import Ray

        actors = Ray(config)
        try:
            return trainer.train(config, folder, actors, in_sweep)
        finally:
            actors.stop()
    from experiments.runtime.torchrun import Torchrun, TorchrunRay, work

    if not errors.is_rank_zero():
        ignore_interrupts()  # rank 0 handles them
    ranks = TorchrunRay() if config.runtime.name == "ray" else Torchrun()
    if not ranks.is_rank_zero:
        work(config, ranks)
        return None
    try:
        ranks.start_workers(config)
        return trainer.train(config, folder, ranks)
    finally:
        ranks.stop()


# What a command does with a run.


def run_one(config: RunConfig, folder: Path | None = None, in_sweep: bool = False) -> End | None:
    """Train, or resume in `folder`. A failure before there is a run folder is an outcome too."""
    if not gc.isenabled():  # the imports are done; freeze them, or each generation scans them
        gc.freeze()
        gc.enable()
    try:
        return train(config, folder, in_sweep)
    except Exception as error:
        if not (expected := errors.is_expected(error)):
            traceback.print_exc()
        return End("failed", error=errors.one_line(error), expected=expected)


def run_alone(config: RunConfig, folder: Path | None = None) -> int:
    """Run, or resume in `folder`, and print how it ended; returns the exit status."""
    if errors.is_rank_zero():
        chosen = f"algo={config.algo.name} task={config.task.name} model={config.model.name}"
        print(f"{chosen} seed={config.seed} steps={config.steps}: loading", file=sys.stderr)
    outcome = run_one(config, folder)
    if outcome is None:  # rank 0 reports
        return 0
    if outcome.status == "interrupted":
        print(f"interrupted; resume with: python run.py resume={outcome.folder}")
    if outcome.status == "failed":
        print(f"error: {outcome.error}", file=sys.stderr)
        return errors.MISUSED if outcome.expected else errors.FAILED
    assert outcome.folder is not None, "it has been trained in"
    if outcome.status == "finished":
        from rich.console import Console

        from analysis.rendering import before_after_table

        Console().print(before_after_table(outcome.folder))
    print(f"run folder: {outcome.folder}")
    if outcome.status == "finished":
        print(f"report: make report RUNS={outcome.folder.parent}")
    return errors.INTERRUPTED if outcome.status == "interrupted" else 0


def resume(arguments: Sequence[str]) -> int:
    """Resume the run in resume=FOLDER, with overrides of keys that may change. Raises UserError."""
    words = [argument for argument in arguments if argument.startswith("resume=")]
    folder = Path(words[-1].partition("=")[2])
    config = resumed_config(folder, [a for a in arguments if a not in words])
    if is_finished(folder, config):
        print(f"already finished; steps=N extends it\nrun folder: {folder}")
        return 0
    check_unlocked(folder)
    check_before_start([config])
    if errors.is_rank_zero() and (kinds := changes(folder)):
        print(f"WARNING: the steps so far are of other {', '.join(kinds)}", file=sys.stderr)
    return run_alone(config, folder)


# Time and disk of runs before they start, by finished runs of their task, model and engine. Seconds
# are scaled by the responses that are trained on, and by those of evaluations. Loading is not among
# them. Disk is that of the other run.

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
