"""Refuse a run that surely does not fit this machine, before its weights are read.

What a run holds throughout (weights, gradients, AdamW's moments, reference, critic, the rollout
policy's copy) is exact. On top comes the largest of the phases that never overlap: the forward and
backward pass of one micro-batch, generation, the optimiser's step. Their sizes follow
`learner/forward.py`, `chosen_logp` and `engines/kv_cache.py` at the longest prompts and responses
that the task allows, for blocks built like Llama's and Qwen's.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from algorithms.base import Needs
from algorithms.logprobs import LOGITS_PER_CHUNK
from experiments.config.schema import PREFETCHED_BATCHES, RunConfig
from experiments.errors import UserError
from experiments.policy import loading

GIB = 2**30
LOSS_BLOCKS = 5  # the most float32 blocks of logits in the backward pass of `chosen_logp`
DRAW_BYTES = 40  # a logit while a token is drawn: sorted copies, their int64 order, sums
ACTIVATIONS, GENERATION, VLLM = "activations", "keys and values while generating", "vLLM"
REMEDIES = {
    ACTIVATIONS: "lower train.micro_batch (or micro_tokens) or set checkpoint_activations=true",
    GENERATION: "lower engine.batch_size",
    VLLM: "lower engine.memory_share",
}
OTHERWISE = "set model.adapter=lora or model.dtype=bfloat16, or choose a smaller model"


@dataclass(frozen=True)
class Shape:
    """The sizes that determine a model's memory, in elements."""

    parameters: int
    largest: int  # of its tensors
    output: int  # the output embedding, if it is not tied to the input's; else 0
    adapted: int  # Σ (in + out) over the linear layers: an adapter's elements for each rank
    width: int
    inner: int  # of the feed-forward block
    layers: int
    query: int  # heads × head width
    key: int  # heads of keys and values × head width
    vocabulary: int


def shape_of(model_config: Any) -> Shape:
    """Return the shape of a causal model of this config; the model is built without memory."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(model_config)
    text, head = model_config.get_text_config(), model.get_output_embeddings()
    sizes = [parameter.numel() for parameter in model.parameters()]
    tied = head.weight is model.get_input_embeddings().weight
    linear = [m for m in model.modules() if isinstance(m, nn.Linear) and m is not head]
    heads = text.num_attention_heads
    head_width = getattr(text, "head_dim", None) or text.hidden_size // heads
    return Shape(
        parameters=sum(sizes),
        largest=max(sizes),
        output=0 if tied else head.weight.numel(),
        adapted=sum(layer.in_features + layer.out_features for layer in linear),
        width=text.hidden_size,
        inner=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        layers=text.num_hidden_layers,
        query=heads * head_width,
        key=(getattr(text, "num_key_value_heads", None) or heads) * head_width,
        vocabulary=text.vocab_size,
    )


def estimate(
    shape: Shape, config: RunConfig, needs: Needs, on_gpu: bool, ranks: int = 0, card: int = 0
) -> dict[str, int]:
    """Return the bytes of a run with resolved lengths and dtype, by purpose; of phases the largest.

    `ranks`: of a sharded learner, of which this is one. `card`: the GPU's bytes in all, of which
    vLLM takes its share. Ray's engines have GPUs of their own.
    """
    train, size = config.train, loading.DTYPES[config.model.dtype].itemsize
    lora, ray = config.model.adapter == "lora", config.runtime.name == "ray"
    weights = shape.parameters * size
    moved = config.model.adapter_rank * shape.adapted if lora else shape.parameters
    base = weights if ranks or not lora else 0  # adapted modules share the policy's base weights
    module = base + (moved * size if lora else 0)
    separate = needs.critic == "separate"
    trained = moved + (moved - (0 if lora else shape.output) if separate else 0)
    fixed = needs.reference and train.reference_every is None
    initial = fixed or train.missing_logprobs == "reference" or config.eval.kl_samples > 0
    copies = (train.reference_every is not None) + len(needs.copies)
    held = {
        "policy": weights + (moved * size if lora else 0),
        "critic": module if separate else 0,
        "gradients": 4 * trained,
        "AdamW's moments": 8 * trained,
        "float32 copies": 4 * trained if size < 4 else 0,
        "reference": base if initial else 0,
        "earlier weights": copies * module,
    }
    held = {name: part // max(1, ranks) for name, part in held.items()}
    phases = {
        ACTIVATIONS: _training_pass(shape, config, needs, size),
        "the optimiser's step": (4 * trained if on_gpu else 8 * shape.largest) // max(1, ranks),
    }
    if not (ray and (on_gpu or ranks)):  # else the engine's memory is elsewhere
        hf = config.engine.name == "hf"
        held["the engine's weights"] = weights if ranks or (lora and hf) else 0
        held["the rollout policy's copy"] = weights if train.keeps_rollout_copy and not lora else 0
        alone = on_gpu and config.engine.device not in ("auto", "cuda:0", config.model.device)
        if hf:
            phases[GENERATION] = _generation(shape, config, needs, size)
        elif not alone:
            vllm = max(weights, int(card * config.engine.memory_share))
            (phases if config.engine.colocate and on_gpu else held)[VLLM] = vllm
    largest = max(phases, key=lambda name: phases[name])
    return {name: part for name, part in held.items() if part} | {largest: phases[largest]}


def _lengths(config: RunConfig, turns: int) -> tuple[int, int]:
    """Return the most tokens of a prompt and behind it."""
    assert config.task.max_prompt_tokens is not None  # resolved by now
    return config.task.max_prompt_tokens, config.longest_response(turns)


def _training_pass(shape: Shape, config: RunConfig, needs: Needs, size: int) -> int:
    """Return the bytes that one micro-batch keeps for its backward pass, logits included.

    Per token: norms, queries, attention's result and the feed-forward block; per slot of a row's
    context: keys and values, repeated for every head; and the mask.
    """
    train, (prompt, response) = config.train, _lengths(config, config.task.turns)
    if train.micro_tokens is None:
        rows = min(train.micro_batch, train.prompts * train.group_size)
        prompts = min(rows, train.prompts)
    else:
        rows = max(1, min((train.micro_tokens - prompt) // response, train.group_size))
        prompts = 1
    tokens = prompts * prompt + rows * response
    token = 2 * (2 * size + 4) * shape.width + (3 * shape.query + 4 * shape.inner) * size
    slots = prompts * prompt + rows * (prompt + response)
    mask = (prompts * prompt**2 + rows * response * (prompt + response)) * size
    layer = tokens * token + slots * 2 * shape.query * size + mask
    saved = shape.layers * layer
    if config.model.checkpoint_activations:  # one layer at a time; of others inputs and prompts
        kept = (tokens * shape.width + prompts * prompt * 2 * shape.key) * size
        saved = shape.layers * kept + layer
    backbones = 2 if needs.critic == "separate" and not needs.critic_apart else 1
    logits = min(rows * response * shape.vocabulary, LOGITS_PER_CHUNK)
    return backbones * saved + LOSS_BLOCKS * 4 * logits


def _generation(shape: Shape, config: RunConfig, needs: Needs, size: int) -> int:
    """Return the bytes of the KV cache, one layer's states for every head, and the draw."""
    problems = getattr(config.task, f"{config.eval.split}_problems")
    requests = max(config.train.prompts * config.train.group_size, problems * config.eval.samples)
    if needs.initial_value != "none":
        prefetched = PREFETCHED_BATCHES * config.train.prompts * config.algo.q0_samples
        requests = max(requests, prefetched)
    rows = min(config.engine.batch_size, requests)
    slots = rows * sum(_lengths(config, max(config.task.turns, config.eval_turns)))
    states = slots * 2 * (shape.key * shape.layers + shape.query) * size
    return states + DRAW_BYTES * rows * shape.vocabulary


def check_memory(config: RunConfig, needs: Needs, ranks: int = 0) -> dict[str, Any]:
    """Return the estimate for run.json. Raises UserError if it exceeds the free memory."""
    device, path = loading.pick_device(config.model.device), config.model.path
    shape = shape_of(loading.read_config(config.model))
    on_gpu, free = device.type == "cuda", free_bytes(device)
    card = torch.cuda.mem_get_info(device)[1] if on_gpu else 0
    parts = estimate(shape, config, needs, on_gpu, ranks, card)
    if (total := sum(parts.values())) > free:
        sizes = sorted(parts.items(), key=lambda part: -part[1])
        raise UserError(
            f"model.path={path}: this run needs about {total / GIB:.2f} GiB on {device} "
            f"({', '.join(f'{name} {size / GIB:.2f}' for name, size in sizes)}) and "
            f"{free / GIB:.2f} GiB are free; {REMEDIES.get(sizes[0][0], OTHERWISE)}"
        )
    return {"estimate_mb": round(total / 2**20), "free_mb": round(free / 2**20)}


def free_bytes(device: torch.device) -> int:
    """Return the bytes that this process may still allocate there."""
    if device.type == "cuda":
        gc.collect()  # an earlier run of this process may have left cycles
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
