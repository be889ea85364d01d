"""Check before loading whether a run fits this machine, and if not, name a change that fits.

`check_jobs` looks at all jobs of a command before the first one starts, without torch: at what is
certain then. `check_memory` looks at each run again when it starts, at the memory free by then.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithms.base import Needs
from experiments.config.model_folder import config_file
from experiments.config.resolve_defaults import resolve_defaults
from experiments.config.schema import ModelConfig, RunConfig
from experiments.errors import UserError
from experiments.gpus import largest_gpu
from experiments.learner.memory import GIB
from experiments.learner.memory_advice import MemoryLimit, memory_fault, needs_of
from experiments.learner.shapes import Shape, shape_of, shape_of_json

if TYPE_CHECKING:
    import torch

CPU_PARAMETERS = 1_000_000_000  # larger models run on a CPU only with model.device=cpu


def check_jobs(configs: Sequence[RunConfig]) -> None:
    """Raise UserError for the first run that exceeds all memory of the largest GPU here.

    Runs on a CPU, with several ranks, and of models whose config.json is not here or is of an
    architecture that `shape_of_json` does not know pass: they are checked when they start.
    """
    alone = [c for c in configs if c.runtime.name == "sync" and c.model.device != "cpu"]
    card = largest_gpu() if alone else 0
    for config in alone if card else ():
        if (shape := _shape_here(config.model)) is None:
            continue
        resolved = resolve_defaults(config, "cuda")
        limit = MemoryLimit(needs_of(config), free=card, on_gpu=True, card=card)
        there = f"the largest GPU here has {card / GIB:.2f} GiB"
        given = (resolved, shape, limit, _shape_here)
        if fault := memory_fault(*given, device="a GPU", there=there):
            raise UserError(f"algo={config.algo.name} {fault}")


def _shape_here(model: ModelConfig) -> Shape | None:
    """Return the shape of a model whose config.json is on this machine and known, else None."""
    try:
        file = config_file(model.path, model.fallback)
        values = json.loads(file.read_text()) if file else None
    except (UserError, OSError, ValueError):  # loading the model says what is wrong
        return None
    return shape_of_json(values) if isinstance(values, dict) else None


def check_memory(config: RunConfig, needs: Needs, ranks: int = 0) -> dict[str, Any]:
    """Return the estimate for run.json. Raises UserError if it exceeds the free memory."""
    import torch

    from experiments.policy import loading

    device = loading.pick_device(config.model.device)
    shape = shape_of(loading.read_config(config.model))
    if device.type == "cpu" and config.model.device == "auto":
        _check_size(config, shape)
    on_gpu, free = device.type == "cuda", free_bytes(device)
    card = torch.cuda.mem_get_info(device)[1] if on_gpu else 0
    limit = MemoryLimit(needs, free, on_gpu, card, ranks)
    there = f"{free / GIB:.2f} GiB are free"
    given = (config, shape, limit, _shape)
    if fault := memory_fault(*given, device=str(device), there=there):
        raise UserError(fault)
    needed = limit.estimate(shape, config)
    return {
        "estimate_mb": round(needed.total / 2**20),
        "free_mb": round(free / 2**20),
        "held_mb": {name: round(size / 2**20, 1) for name, size in needed.held.items()},
        "phases_mb": {name: round(size / 2**20, 1) for name, size in needed.phases.items()},
    }


def _shape(model: ModelConfig) -> Shape | None:
    """Return the model's shape; None if its config cannot be had: gated, or no network."""
    from experiments.policy import loading

    try:
        return shape_of(loading.read_config(model))
    except UserError:
        return None


def free_bytes(device: torch.device) -> int:
    """Return the bytes that this process may still allocate there.

    On a GPU, what an earlier run of this process left behind (cycles, torch's cache) is given back
    first: a sweep without `jobs=` runs one job after the other in one process.
    """
    if device.type == "cuda":
        import torch

        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0]
    lines = Path("/proc/meminfo").read_text().splitlines()
    (available,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    free = int(available) * 1024
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        return min(free, limit - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no version-2 control group, or no limit
        return free


def _check_size(config: RunConfig, shape: Shape) -> None:
    """Raise UserError if the model is too large to be put on a CPU by default."""
    billions = shape.parameters / 1e9
    if shape.parameters > CPU_PARAMETERS:
        raise UserError(
            f"model.path={config.model.path}: no GPU is visible here, and {billions:.1f} B "
            f"parameters are more than the default limit of {CPU_PARAMETERS / 1e9:.1f} B on a CPU; "
            "choose a smaller model (model=nano needs no download), or set model.device=cpu"
        )
