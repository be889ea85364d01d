"""Whether a run fits this machine, said before a weight is read; and if not, what would fit."""

from __future__ import annotations

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
    GIB,
    WRITING,
    Estimate,
    Shape,
    estimate,
    shape_of,
    vllm_least,
)
from experiments.policy import loading

CONF = Path(__file__).resolve().parents[2] / "conf" / "model"
CPU_PARAMETERS = 1_000_000_000  # a larger model is not put on a CPU unasked
SHARE_STEP = 0.05  # of a GPU, by which vLLM may have less


@dataclass(frozen=True)
class MemoryLimit:
    """What a run, or one of its `ranks`, may take: `free` bytes, of a GPU's `card` in all."""

    needs: Needs
    free: int
    on_gpu: bool = False
    card: int = 0
    ranks: int = 0

    def takes(self, shape: Shape, config: RunConfig) -> Estimate:
        return estimate(shape, config, self.needs, self.on_gpu, self.ranks, self.card)

    def holds_vllm(self, shape: Shape, config: RunConfig) -> bool:
        """Whether its share is enough for it to start."""
        return config.engine.memory_share * self.card >= vllm_least(shape, config)


def check_memory(config: RunConfig, needs: Needs, ranks: int = 0) -> dict[str, Any]:
    """The estimate for run.json. Raises UserError where it is more than what is free."""
    device = loading.pick_device(config.model.device)
    shape = shape_of(loading.read_config(config.model))
    if device.type == "cpu" and config.model.device == "auto":
        _check_size(config, shape)
    on_gpu, free = device.type == "cuda", free_bytes(device)
    card = torch.cuda.mem_get_info(device)[1] if on_gpu else 0
    room = MemoryLimit(needs, free, on_gpu, card, ranks)
    found = room.takes(shape, config)
    if found.total > free:
        fitting = what_fits(config, shape, device, room)
        raise UserError(
            f"model.path={config.model.path}: this run needs about {found.total / GIB:.2f} GiB on "
            f"{device} ({found.in_words()}) and {free / GIB:.2f} GiB are free; {fitting}"
        )
    return {
        "estimate_mb": round(found.total / 2**20),
        "free_mb": round(free / 2**20),
        "held_mb": {name: round(size / 2**20, 1) for name, size in found.held.items()},
        "phases_mb": {name: round(size / 2**20, 1) for name, size in found.phases.items()},
    }


def free_bytes(device: torch.device) -> int:
    """What a process may still take there."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    lines = Path("/proc/meminfo").read_text().splitlines()
    (available,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    free = int(available) * 1024
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        return min(free, limit - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no control group of version 2, or none with a limit
        return free


def what_fits(config: RunConfig, shape: Shape, device: torch.device, room: MemoryLimit) -> str:
    """The least change that fits: smaller pieces, then bfloat16, then a smaller model of ours."""
    for words, changed, sizes in _variants(config, shape, device):
        pieces = smaller_pieces(changed, sizes, room)
        if pieces is not None:
            return f"{' '.join([*words, *pieces])} fits"
    return "none of the models in conf/model fits"


def _variants(
    config: RunConfig, shape: Shape, device: torch.device
) -> Iterator[tuple[list[str], RunConfig, Shape]]:
    """(overrides, the run with them, its model's shape), the least change first."""
    yield [], config, shape
    model = config.model
    if model.dtype == "float32":  # activations halve; what is held does not
        halved = replace(config, model=replace(model, dtype="bfloat16"))
        yield ["model.dtype=bfloat16"], halved, shape
    if config.model.adapter == "none":
        yield ["model.adapter=lora"], replace(config, model=replace(model, adapter="lora")), shape
    for model, smaller in _smaller_models(shape, device):
        yield [f"model={model.name}"], replace(config, model=model), smaller


def _smaller_models(shape: Shape, device: torch.device) -> list[tuple[ModelConfig, Shape]]:
    """The named models whose config can be had here, largest first."""
    found = []
    for file in sorted(CONF.glob("*.yaml")):
        held = OmegaConf.load(file)
        if OmegaConf.is_missing(held, "path"):
            continue
        model = ModelConfig(**held)
        if model.dtype == "auto":
            model = replace(model, dtype=default_dtype(device.type))
        try:
            found.append((model, shape_of(loading.read_config(model))))
        except UserError:
            continue  # gated, or no network
    found = [(model, sizes) for model, sizes in found if sizes.parameters < shape.parameters]
    return sorted(found, key=lambda pair: -pair[1].parameters)


def smaller_pieces(config: RunConfig, shape: Shape, room: MemoryLimit) -> list[str] | None:
    """Overrides that make it fit by doing less at once, none where it fits; None: it cannot.

    They change memory and time, not results.
    """
    less: dict[str, float] = {}
    while (found := room.takes(shape, config)).total > room.free:
        name = "micro_batch" if config.train.micro_tokens is None else "micro_tokens"
        share = round(config.engine.memory_share - SHARE_STEP, 2)
        with_less = replace(config, engine=replace(config.engine, memory_share=share))
        if found.largest_phase == ACTIVATIONS and getattr(config.train, name) > 1:
            pieces = less[f"train.{name}"] = getattr(config.train, name) // 2
            config = replace(config, train=replace(config.train, **{name: pieces}))
        elif _lowers(room, shape, with_less, found):
            config, less["engine.memory_share"] = with_less, share
        elif found.largest_phase == WRITING and config.engine.batch_size > 1:
            pieces = less["engine.batch_size"] = config.engine.batch_size // 2
            config = replace(config, engine=replace(config.engine, batch_size=pieces))
        else:
            return None
    return [f"{key}={value}" for key, value in less.items()]


def _lowers(room: MemoryLimit, shape: Shape, with_less: RunConfig, found: Estimate) -> bool:
    """Whether vLLM's smaller share of the GPU is of use, and still enough for it."""
    enough = room.holds_vllm(shape, with_less)
    return enough and room.takes(shape, with_less).total < found.total


def _check_size(config: RunConfig, shape: Shape) -> None:
    billions = shape.parameters / 1e9
    if shape.parameters > CPU_PARAMETERS:
        raise UserError(
            f"model.path={config.model.path}: no GPU is visible here, and {billions:.1f} B "
            f"parameters are more than the {CPU_PARAMETERS / 1e9:.1f} B that go on a CPU unasked; "
            "take a smaller model (model=nano needs no download), or set model.device=cpu"
        )
