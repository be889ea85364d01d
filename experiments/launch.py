"""Start a run: in this process, under its `runtime`, a stopped one again, or jobs under Slurm."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.errors import UserError, is_expected, one_line
from experiments.run_dir.interrupts import ignore_interrupts

if TYPE_CHECKING:
    from experiments.config.schema import RunConfig
    from experiments.runtime.torchrun import Torchrun, TorchrunRay
    from experiments.trainer import Outcome

FAILED, MISUSED, INTERRUPTED = 1, 2, 130  # exit statuses


def is_rank_zero() -> bool:
    """Whether this process prints for the run: rank 0, or the only process."""
    return os.environ.get("RANK", "0") == "0"


def torchrun_ranks() -> int:
    """Return the number of processes that torchrun started; 0: it did not start this one."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 0


def check_launch(config: RunConfig) -> None:
    """Raise UserError if the command that started this process does not fit `runtime`."""
    ranks = torchrun_ranks()
    if config.runtime.name == "torchrun" and not ranks:
        raise UserError(
            "runtime=torchrun: start the run with torchrun: "
            "torchrun --nproc-per-node N run.py runtime=torchrun ..."
        )
    if ranks > int(os.environ.get("LOCAL_WORLD_SIZE", ranks)):
        raise UserError(f"torchrun with {ranks} processes on several nodes: use a single node")
    if ranks and config.runtime.name != "sync" and config.model.device != "auto":
        raise UserError(
            f"model.device={config.model.device} under torchrun: each process uses its own "
            "GPU; use model.device=auto"
        )
    if config.runtime.name == "sync" and ranks > 1:
        raise UserError(
            f"runtime=sync under torchrun with {ranks} processes would be {ranks} identical "
            "runs; add runtime=torchrun or runtime=ray"
        )


def train(
    config: RunConfig, folder: Path | None = None, label: str = "", in_sweep: bool = False
) -> Outcome | None:
    """Run a configuration, or resume the run in `folder`. Returns None on ranks other than 0."""
    check_launch(config)
    from experiments import trainer

    if config.runtime.name == "sync":
        return trainer.train(config, folder, label, in_sweep=in_sweep)
    if torchrun_ranks() > 1 or config.runtime.name == "torchrun":
        return _train_on_rank(config, folder, label)
    from experiments.config.preflight import set_ray_environment

    set_ray_environment(config.runtime.address)  # which Ray reads as it is imported
    from experiments.runtime.ray import Ray

    runtime = Ray(config)
    try:
        return trainer.train(config, folder, label, runtime, in_sweep)
    finally:
        runtime.stop()


def _train_on_rank(config: RunConfig, folder: Path | None, label: str) -> Outcome | None:
    from experiments import trainer
    from experiments.runtime.torchrun import Torchrun, TorchrunRay

    if int(os.environ["RANK"]):
        ignore_interrupts()  # rank 0 handles them
    runtime: Torchrun | TorchrunRay
    runtime = TorchrunRay() if config.runtime.name == "ray" else Torchrun()
    if not runtime.is_rank_zero:
        _serve(config, runtime)
        return None
    try:
        runtime.start_workers(config)
        return trainer.train(config, folder, label, runtime)
    finally:
        runtime.stop()


def _serve(config: RunConfig, ranks: Torchrun | TorchrunRay) -> None:
    """Build this rank's parts and run rank 0's calls of them.

    A rank that cannot start keeps its error for rank 0, which asks every rank and reports.
    """
    from experiments.runtime.torchrun import RunEnded

    with ExitStack() as stack:
        try:
            _build(config, ranks, stack)
        except RunEnded:
            ranks.leave()
            return
        except Exception as error:
            if not is_expected(error):
                traceback.print_exc()
            ranks.start_error = one_line(error)
        ranks.serve()
    ranks.leave()


def _build(config: RunConfig, ranks: Torchrun | TorchrunRay, stack: ExitStack) -> None:
    import torch

    from experiments.config.preflight import resolve_defaults
    from experiments.policy import loading
    from experiments.runtime.base import build_worker_parts
    from experiments.runtime.judges import open_environments

    loading.set_up_torch(config.model.threads)
    torch.manual_seed(config.seed)
    config = resolve_defaults(config, str(loading.pick_device(config.model.device)))
    base, tokenizer = loading.load(config.model)
    local = stack.enter_context(open_environments(config)) if ranks.local_engines else None
    build_worker_parts(config, base, tokenizer, local, ranks)


# What a command does with a run.


def run_one(
    config: RunConfig, folder: Path | None = None, label: str = "", in_sweep: bool = False
) -> Outcome | None:
    """Train, or resume in `folder`. A failure before there is a run folder is an outcome too."""
    from experiments.trainer import Outcome

    if not gc.isenabled():  # the imports are done; freeze them, or each generation scans them
        gc.freeze()
        gc.enable()
    try:
        return train(config, folder, label, in_sweep)
    except Exception as error:
        if not is_expected(error):
            traceback.print_exc()
        return Outcome(None, "failed", one_line(error), is_expected(error))


def run_alone(config: RunConfig, folder: Path | None = None) -> int:
    """Run, or resume in `folder`, and print how it ended; returns the exit status."""
    if is_rank_zero():
        chosen = f"algo={config.algo.name} task={config.task.name} model={config.model.name}"
        print(f"{chosen} seed={config.seed} steps={config.steps}: loading", file=sys.stderr)
    outcome = run_one(config, folder)
    if outcome is None:  # rank 0 reports
        return 0
    if outcome.status == "interrupted":
        print(f"interrupted; resume with: python run.py resume={outcome.folder}")
    if outcome.status == "failed":
        print(f"error: {outcome.error}", file=sys.stderr)
        return MISUSED if outcome.expected else FAILED
    assert outcome.folder is not None, "it has been trained in"
    if outcome.status == "finished":
        from rich.console import Console

        from analysis.rendering import before_after_table

        Console().print(before_after_table(outcome.folder))
    print(f"run folder: {outcome.folder}")
    return INTERRUPTED if outcome.status == "interrupted" else 0


def resume(arguments: Sequence[str]) -> int:
    """Resume the run in resume=FOLDER, with overrides of keys that may change. Raises UserError."""
    from experiments.config.composition import is_finished, resumed_config
    from experiments.config.preflight import check_before_start
    from experiments.run_dir.atomic_files import check_unlocked
    from experiments.run_dir.provenance import changes

    words = [argument for argument in arguments if argument.startswith("resume=")]
    folder = Path(words[-1].partition("=")[2])
    config = resumed_config(folder, [a for a in arguments if a not in words])
    if is_finished(folder, config):
        print(f"already finished; steps=N extends it\nrun folder: {folder}")
        return 0
    check_unlocked(folder)
    check_before_start([config])
    if is_rank_zero() and (kinds := changes(folder)):
        print(f"WARNING: the steps so far are of other {', '.join(kinds)}", file=sys.stderr)
    return run_alone(config, folder)
