"""What a run will hold in memory, from the model's configuration alone, before any weight is read.

Weights, gradients, the optimiser's moments and the copies that the algorithm needs are counted
exactly; activations are estimated from above, for prompts and responses of full length.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from algorithms.base import Needs
from algorithms.tensors import LOGITS_PER_CHUNK
from experiments.config import RunConfig
from experiments.errors import UserError

if TYPE_CHECKING:
    from torch import nn

CPU_PARAMETERS = 1_000_000_000  # above, a CPU must be asked for by name: a step would take hours
_BYTES = {"float32": 4, "bfloat16": 2}
_LOGIT_BYTES = 16  # of one logit while its chunk is worked on: float32, its exponential, gradients


@dataclass(frozen=True)
class Shape:
    """A model by its sizes."""

    parameters: int
    layers: int
    width: int
    inner_width: int  # of the feed-forward part
    cache_width: int  # keys and values of one token in one layer
    vocabulary: int

    @classmethod
    def of(cls, model: nn.Module) -> Shape:
        config = model.config.get_text_config()
        heads = config.num_attention_heads
        head_width = getattr(config, "head_dim", None) or config.hidden_size // heads
        return cls(
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            inner_width=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
            cache_width=2 * head_width * (getattr(config, "num_key_value_heads", None) or heads),
            vocabulary=config.vocab_size,
        )


@dataclass(frozen=True)
class Estimate:
    """Bytes. Training's activations and sampling's key-value cache are never there together."""

    held: dict[str, int]  # all the time, by what it is
    training: int  # beside it, per response of a micro-batch
    sampling: int  # beside it, per response that is written at once
    chunk: int  # of logits, while training
    micro_batch: int
    batch_size: int

    @property
    def total(self) -> int:
        training = self.micro_batch * self.training + self.chunk
        return sum(self.held.values()) + max(training, self.batch_size * self.sampling)

    def fitting(self, free: int) -> dict[str, int]:
        """The largest train.micro_batch and engine.batch_size in `free` bytes; 0: none."""
        left = free - sum(self.held.values())
        training = max(0, (left - self.chunk) // self.training)
        sampling = max(0, left // self.sampling)
        return {
            "train.micro_batch": min(self.micro_batch, training),
            "engine.batch_size": min(self.batch_size, sampling),
        }

    def __str__(self) -> str:
        held = [f"{name} {size / 1e9:.2f}" for name, size in self.held.items()]
        training = (self.micro_batch * self.training + self.chunk) / 1e9
        sampling = self.batch_size * self.sampling / 1e9
        return (
            f"{self.total / 1e9:.1f} GB: {', '.join(held)}, and then {training:.2f} to train on "
            f"train.micro_batch={self.micro_batch} responses or {sampling:.2f} to write "
            f"engine.batch_size={self.batch_size}"
        )


def estimate(shape: Shape, config: RunConfig, needs: Needs) -> Estimate:
    """Everything is in the model's dtype, the optimiser's moments too."""
    c, size = config.task, _BYTES[config.model.dtype]
    weights = shape.parameters * size
    held = {"weights": weights, "gradients": weights, "optimiser": 2 * weights}
    if needs.reference:
        held["reference"] = weights
    if needs.critic == "separate":
        held["critic, its gradients and optimiser"] = 4 * weights
    if config.train.sync_every > 1:
        held["copy that writes"] = weights
    # Of each token and layer the backward pass reads again: norms, queries, keys, values, the
    # attention's output, both residuals; gate, up, and their product.
    kept = shape.layers * (8 * shape.width + 4 * shape.inner_width) * size
    tokens = c.max_prompt_tokens + c.max_response_tokens
    micro_batch = min(config.train.micro_batch, config.train.prompts * config.train.group_size)
    sampling = tokens * shape.layers * shape.cache_width * size
    if config.engine.name == "vllm":
        held["vLLM's weights"] = weights
        sampling = 1  # it plans its cache within engine.memory_share
    logits = min(LOGITS_PER_CHUNK, micro_batch * c.max_response_tokens * shape.vocabulary)
    return Estimate(
        held=held,
        training=tokens * kept,
        sampling=sampling,
        chunk=logits * _LOGIT_BYTES,
        micro_batch=micro_batch,
        batch_size=config.engine.batch_size,
    )


def check(shape: Shape, config: RunConfig, needs: Needs, device: str, free: int) -> Estimate:
    """The estimate. Raises UserError where it does not fit in `free` bytes, with what would."""
    c = config.model
    if device == "cpu" and c.device == "auto" and shape.parameters > CPU_PARAMETERS:
        raise UserError(
            f"model.path={c.path}: {shape.parameters / 1e9:.1f} B parameters and no GPU here; take "
            "a smaller model (model=qwen25_coder_0b5, model=nano), or model.device=cpu for a very "
            "slow run"
        )
    found = estimate(shape, config, needs)
    if found.total > free:
        raise UserError(
            f"model.path={c.path}: algo={config.algo.name} needs about {found}; "
            f"{free / 1e9:.1f} GB are free on {device}; {_what_fits(found, shape, config, free)}"
        )
    return found


def _what_fits(found: Estimate, shape: Shape, config: RunConfig, free: int) -> str:
    fitting = found.fitting(free)
    if all(fitting.values()):
        return " and ".join(f"{key}={value}" for key, value in fitting.items()) + " fit"
    if config.model.dtype == "float32" and found.total / 2 <= free:
        return "model.dtype=bfloat16 fits"
    billions = shape.parameters * free / (sum(found.held.values()) + found.training) / 1e9
    return f"a model of less than about {billions:.2g} B parameters fits"


def free_bytes(device: str) -> int:
    """What may still be allocated: the GPU's free memory, or the host's and its control group's."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.mem_get_info(torch.device(device))[0]
    facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(facts["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        return min(free, limit - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no such group, or no limit in it
        return min(free, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
