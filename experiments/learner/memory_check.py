"""Check before loading whether a run fits this machine, and if not, find a change that fits."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from algorithms.base import Needs
from experiments.config.resolve_defaults import default_dtype
from experiments.config.schema import ModelConfig, RunConfig
from experiments.errors import UserError
from experiments.learner.memory import (
    ACTIVATIONS,
    GENERATION,
    GIB,
    Estimate,
    Shape,
    estimate,
    shape_of,
    vllm_least,
)
from experiments.policy import loading

CONF = Path(__file__).resolve().parents[2] / "conf" / "model"
CPU_PARAMETERS = 1_000_000_000  # larger models run on a CPU only with model.device=cpu
SHARE_STEP = 0.05  # of a GPU, by which vLLM's share is lowered at a time


@dataclass(frozen=True)
class MemoryLimit:
    """The memory that a run, or one of its `ranks`, may take: `free` bytes of a GPU's `card`."""

    needs: Needs
    free: int
    on_gpu: bool = False
    card: int = 0
    ranks: int = 0

    def estimate(self, shape: Shape, config: RunConfig) -> Estimate:
        return estimate(shape, config, self.needs, self.on_gpu, self.ranks, self.card)

    def fits_vllm(self, shape: Shape, config: RunConfig) -> bool:
        """Whether vLLM's share is enough for it to start."""
        return config.engine.memory_share * self.card >= vllm_least(shape, config)


def check_memory(config: RunConfig, needs: Needs, ranks: int = 0) -> dict[str, Any]:
    """Return the estimate for run.json. Raises UserError if it exceeds the free memory."""
    device = loading.pick_device(config.model.device)
    shape = shape_of(loading.read_config(config.model))
    if device.type == "cpu" and config.model.device == "auto":
        _check_size(config, shape)
    on_gpu, free = device.type == "cuda", free_bytes(device)
    card = torch.cuda.mem_get_info(device)[1] if on_gpu else 0
    limit = MemoryLimit(needs, free, on_gpu, card, ranks)
    needed = limit.estimate(shape, config)
    if needed.total > free:
        suggestion = suggest_change(config, shape, device, limit)
        raise UserError(
            f"model.path={config.model.path}: this run needs about {needed.total / GIB:.2f} GiB on "
            f"{device} ({needed.summary()}) and {free / GIB:.2f} GiB are free; {suggestion}"
        )
    return {
        "estimate_mb": round(needed.total / 2**20),
        "free_mb": round(free / 2**20),
        "held_mb": {name: round(size / 2**20, 1) for name, size in needed.held.items()},
        "phases_mb": {name: round(size / 2**20, 1) for name, size in needed.phases.items()},
    }


def free_bytes(device: torch.device) -> int:
    """Return the bytes that this process may still allocate there.

    On a GPU, what an earlier run of this process left behind (cycles, torch's cache) is given back
    first: a sweep without `jobs=` runs one job after the other in one process.
    """
    if device.type == "cuda":
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


def suggest_change(
    config: RunConfig, shape: Shape, device: torch.device, limit: MemoryLimit
) -> str:
    """Name the least change that fits: smaller pieces, bfloat16, LoRA, or a smaller model."""
    for overrides, variant, variant_shape in _variants(config, shape, device):
        pieces = smaller_pieces(variant, variant_shape, limit)
        if pieces is not None:
            return f"{' '.join([*overrides, *pieces])} fits"
    return "none of the models in conf/model fits"


def _variants(
    config: RunConfig, shape: Shape, device: torch.device
) -> Iterator[tuple[list[str], RunConfig, Shape]]:
    """Yield (overrides, the run with them, its model's shape), the least change first."""
    yield [], config, shape
    model = config.model
    if model.dtype == "float32":  # activations halve, the rest does not
        halved = replace(config, model=replace(model, dtype="bfloat16"))
        yield ["model.dtype=bfloat16"], halved, shape
    if config.model.adapter == "none":
        yield ["model.adapter=lora"], replace(config, model=replace(model, adapter="lora")), shape
    for model, smaller in _smaller_models(shape, device):
        yield [f"model={model.name}"], replace(config, model=model), smaller


def _smaller_models(shape: Shape, device: torch.device) -> list[tuple[ModelConfig, Shape]]:
    """Return the smaller models of conf/model whose config is available here, largest first."""
    models = []
    for file in sorted(CONF.glob("*.yaml")):
        settings = OmegaConf.load(file)
        if OmegaConf.is_missing(settings, "path"):
            continue
        model = ModelConfig(**{str(key): value for key, value in settings.items()})
        if model.dtype == "auto":
            model = replace(model, dtype=default_dtype(device.type))
        try:
            models.append((model, shape_of(loading.read_config(model))))
        except UserError:
            continue  # gated, or no network
    smaller = [pair for pair in models if pair[1].parameters < shape.parameters]
    return sorted(smaller, key=lambda pair: -pair[1].parameters)


def smaller_pieces(config: RunConfig, shape: Shape, limit: MemoryLimit) -> list[str] | None:
    """Return overrides that make a run fit by doing less at once; None if none do.

    They change memory and time, not results. A run that fits needs none.
    """
    smaller: dict[str, float] = {}
    while (needed := limit.estimate(shape, config)).total > limit.free:
        name = "micro_batch" if config.train.micro_tokens is None else "micro_tokens"
        share = round(config.engine.memory_share - SHARE_STEP, 2)
        lower_share = replace(config, engine=replace(config.engine, memory_share=share))
        if needed.largest_phase == ACTIVATIONS and getattr(config.train, name) > 1:
            size = smaller[f"train.{name}"] = getattr(config.train, name) // 2
            config = replace(config, train=replace(config.train, **{name: size}))
        elif _lowers(limit, shape, lower_share, needed):
            config, smaller["engine.memory_share"] = lower_share, share
        elif needed.largest_phase == GENERATION and config.engine.batch_size > 1:
            size = smaller["engine.batch_size"] = config.engine.batch_size // 2
            config = replace(config, engine=replace(config.engine, batch_size=size))
        else:
            return None
    return [f"{key}={value}" for key, value in smaller.items()]


def _lowers(limit: MemoryLimit, shape: Shape, lower_share: RunConfig, needed: Estimate) -> bool:
    """Whether vLLM's lower share of the GPU lowers the estimate, and still fits vLLM."""
    fits = limit.fits_vllm(shape, lower_share)
    return fits and limit.estimate(shape, lower_share).total < needed.total


def _check_size(config: RunConfig, shape: Shape) -> None:
    """Raise UserError if the model is too large to be put on a CPU by default."""
    billions = shape.parameters / 1e9
    if shape.parameters > CPU_PARAMETERS:
        raise UserError(
            f"model.path={config.model.path}: no GPU is visible here, and {billions:.1f} B "
            f"parameters are more than the default limit of {CPU_PARAMETERS / 1e9:.1f} B on a CPU; "
            "choose a smaller model (model=nano needs no download), or set model.device=cpu"
        )
