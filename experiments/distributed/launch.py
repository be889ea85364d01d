"""From `runtime` to a run: in this process, as one of torchrun's ranks, or beside Ray's actors."""

from __future__ import annotations

import os
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.errors import UserError
from experiments.run_dir.interrupts import ignore_ends

if TYPE_CHECKING:
    from experiments.config.schema import RunConfig
    from experiments.distributed.torchrun import Torchrun
    from experiments.trainer import Outcome


def speaks() -> bool:
    """Whether this process is the one that people hear of."""
    return os.environ.get("RANK", "0") == "0"


def ranks_started() -> int:
    """How many torchrun has started; 0: it has not."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 0


def check_started(config: RunConfig) -> None:
    """Raises UserError where the command and `runtime` do not go together."""
    ranks = ranks_started()
    if config.runtime.name == "torchrun" and not ranks:
        raise UserError(
            "runtime=torchrun: torchrun starts such a run: "
            "torchrun --nproc-per-node N run.py runtime=torchrun ..."
        )
    if ranks > int(os.environ.get("LOCAL_WORLD_SIZE", ranks)):
        raise UserError(f"torchrun with {ranks} processes on several nodes: they are of one node")
    if ranks and config.runtime.name != "sync" and config.model.device != "auto":
        raise UserError(
            f"model.device={config.model.device} under torchrun: each process takes the GPU that "
            "is its own; use model.device=auto"
        )
    if config.runtime.name == "sync" and ranks > 1:
        raise UserError(
            f"runtime=sync under torchrun with {ranks} processes would be {ranks} equal runs; add "
            "runtime=torchrun, or runtime=ray"
        )


def train(config: RunConfig, folder: Path | None = None, label: str = "") -> Outcome | None:
    """Run it; None on a rank that only did as it was told."""
    check_started(config)
    from experiments import trainer

    if config.runtime.name == "sync":
        return trainer.train(config, folder, label)
    if ranks_started() > 1 or config.runtime.name == "torchrun":
        return _as_rank(config, folder, label)
    from experiments.distributed.ray_cluster import RayCluster

    cluster = RayCluster(config)
    try:
        return trainer.train(config, folder, label, cluster)
    finally:
        cluster.stop()


def _as_rank(config: RunConfig, folder: Path | None, label: str) -> Outcome | None:
    from experiments import trainer
    from experiments.distributed.torchrun import Torchrun
    from experiments.distributed.torchrun_ray import TorchrunRay

    if int(os.environ["RANK"]):
        ignore_ends()  # the main rank's business
    ranks = TorchrunRay() if config.runtime.name == "ray" else Torchrun()
    if not ranks.main:
        return _serve(config, ranks)
    try:
        ranks.join(config)
        return trainer.train(config, folder, label, ranks)
    finally:
        ranks.stop()


def _serve(config: RunConfig, ranks: Torchrun) -> None:
    """The parts of a run that do its work, and nothing that decides.

    What it cannot begin for is the main rank's to tell: this one waits to be asked.
    """
    from experiments.distributed.torchrun import Ended
    from experiments.errors import is_expected, one_line

    with ExitStack() as stack:
        try:
            _build(config, ranks, stack)
        except Ended:
            ranks.leave()
            return
        except Exception as error:
            if not is_expected(error):
                traceback.print_exc()
            ranks.start.error = one_line(error)
        ranks.serve()
    ranks.leave()


def _build(config: RunConfig, ranks: Torchrun, stack: ExitStack) -> None:
    import torch

    from experiments.config.resolve_defaults import pick
    from experiments.distributed.worker_parts import working_parts
    from experiments.policy import loading
    from experiments.rollout.environments import open_environments

    torch.set_num_threads(config.model.threads)
    torch.manual_seed(config.seed)
    config = pick(config, str(loading.pick_device(config.model.device)))
    model, tokenizer = loading.load(config.model)
    made = stack.enter_context(open_environments(config)) if ranks.writes else None
    working_parts(config, model, tokenizer, made, ranks)
