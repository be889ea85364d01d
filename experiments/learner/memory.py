"""Estimate of a run's memory, from the model's config alone: no weight is read.

Memory held throughout (weights, gradients, AdamW's moments, reference, critic, the rollout policy's
copy) is exact. On top comes the largest of the phases that never overlap: generation, the forward
and backward pass of one micro-batch, the optimiser's step. Their sizes follow
`engines/kv_cache.py`, `learner/forward.py` and `chosen_logp` at the longest prompts and responses
that the task allows, for blocks built like Llama's and Qwen's. For other architectures the same sum
is a guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from algorithms.base import Needs
from algorithms.tensors import LOGITS_PER_CHUNK
from experiments.config.schema import PREFETCHED_BATCHES

if TYPE_CHECKING:
    from experiments.config.schema import RunConfig

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2}
ACTIVATIONS, GENERATION = "activations", "keys and values while writing"  # phases
LOSS_BLOCKS = 5  # the most float32 blocks of logits in the backward pass of `chosen_logp`
DRAW_BYTES = 40  # a logit while a token is drawn: sorted copies, their int64 order, sums


@dataclass(frozen=True)
class Shape:
    """The sizes that determine a model's memory, in elements."""

    tensors: tuple[int, ...]  # the size of each parameter, tied ones once
    output: int  # the output embedding, if it is not tied to the input's; else 0
    width: int
    inner: int  # of the feed-forward block
    layers: int
    query: int  # heads × head width
    key: int  # heads of keys and values × head width
    heads: int
    normed_heads: bool  # queries and keys are normalised, as in Qwen3
    vocabulary: int
    linear: tuple[tuple[int, int], ...]  # (in, out) of every linear layer but the head

    @property
    def parameters(self) -> int:
        return sum(self.tensors)

    def adapter(self, rank: int) -> tuple[int, ...]:
        """Return the sizes of an adapter's tensors."""
        return tuple(rank * width for pair in self.linear for width in pair)


@dataclass(frozen=True)
class Estimate:
    """Bytes of a run, by purpose."""

    parameters: int
    held: dict[str, int]  # throughout the run
    phases: dict[str, int]  # on top, one phase at a time

    @property
    def total(self) -> int:
        return sum(self.held.values()) + max(self.phases.values())

    @property
    def without_generation(self) -> int:
        """The total of a learner alone."""
        phases = [size for name, size in self.phases.items() if name != GENERATION]
        return sum(self.held.values()) + max(phases)

    @property
    def largest_phase(self) -> str:
        return max(self.phases, key=lambda name: self.phases[name])

    def summary(self) -> str:
        """Return the parts of the total in GiB, largest first."""
        phase = self.largest_phase
        parts = self.held | {phase: self.phases[phase]}
        sizes = sorted(parts.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {size / GIB:.2f}" for name, size in sizes)


def shape_of(model_config: Any) -> Shape:
    """Return the shape of a causal model of this config; the model is built without memory."""
    import torch
    import transformers

    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(model_config)
    text = model_config.get_text_config()
    tied = {id(p) for p in model.get_input_embeddings().parameters()}
    output = [p.numel() for p in model.get_output_embeddings().parameters() if id(p) not in tied]
    head_width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    key_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    return Shape(
        tensors=tuple(parameter.numel() for parameter in model.parameters()),
        output=sum(output),
        width=text.hidden_size,
        inner=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        layers=text.num_hidden_layers,
        query=text.num_attention_heads * head_width,
        key=key_heads * head_width,
        heads=text.num_attention_heads,
        normed_heads=any(name.endswith("q_norm") for name, _ in model.named_modules()),
        vocabulary=text.vocab_size,
        linear=tuple(
            (m.in_features, m.out_features) for m in model.modules() if _has_adapter(m, model)
        ),
    )


def _has_adapter(module: Any, model: Any) -> bool:
    """Whether LoRA adapts the module: every linear layer but the head."""
    from torch import nn

    return isinstance(module, nn.Linear) and module is not model.get_output_embeddings()


def estimate(
    shape: Shape, config: RunConfig, needs: Needs, on_gpu: bool, ranks: int = 0, card: int = 0
) -> Estimate:
    """Estimate the memory of a run with resolved lengths and dtype, or of one of its `ranks`.

    With ranks, the learner's memory is a shard and an engine's copy whole. Per-layer FSDP gathers
    are not counted; embedding and head are. Ray's engines have GPUs of their own, and with ranks
    the copies for them are in host memory. `card`: the GPU's bytes in all, of which vLLM takes its
    share; 0 counts vLLM's weights alone.
    """
    apart = on_gpu and config.runtime.name == "ray"
    size = BYTES[config.model.dtype]
    weights = shape.parameters * size
    adapter = shape.adapter(config.model.adapter_rank) if config.model.adapter == "lora" else ()
    moved = adapter or shape.tensors  # sizes of the tensors that the optimiser updates
    trained, tensors, copied = sum(moved), len(moved), sum(moved)
    # Adapted modules share the policy's base weights; sharded modules have their own.
    backbone = weights if ranks or not adapter else 0
    head = 4 * (shape.width + 1)  # a critic's, always in float32
    held = {"policy": weights + sum(adapter) * size}
    if needs.critic == "shared":
        held["critic"] = head
        trained, tensors = trained + shape.width + 1, tensors + 2
    elif needs.critic == "separate":
        held["critic"] = backbone + sum(adapter) * size + head
        unused = 0 if adapter else shape.output  # a critic has no logits
        trained += sum(moved) - unused + shape.width + 1
        tensors += len(moved) - bool(unused) + 2
        copied += sum(moved)
    held["gradients"] = 4 * trained  # float32, as all of the optimiser's tensors
    held["AdamW's moments"] = 8 * trained + 4 * tensors  # and a step count for each
    if size < 4:
        held["float32 copies"] = 4 * copied
    if needs.reference or config.eval.kl_samples or config.train.missing_logprobs == "reference":
        held["reference"] = backbone
    if needs.average is not None:
        exact = 4 * sum(moved) if size < 4 else 0
        held["the weights' moving average"] = backbone + sum(adapter) * size + exact
    if past := sum(since is not None for since in (needs.precedent, needs.reincarnation)):
        held["copies of earlier weights"] = past * (backbone + sum(adapter) * size)
    if ranks:
        held = {name: -(-size // ranks) for name, size in held.items()}
        held["gathered weights"] = 2 * shape.width * shape.vocabulary * size
    in_host = bool(ranks) and apart
    if (ranks or (adapter and config.engine.name == "hf")) and not in_host:
        held["the engine's weights"] = weights
    if ranks and needs.initial_value != "none" and not in_host:
        held["the base that answers for initial values"] = weights
    beside = config.engine.name == "vllm" and not apart and not (on_gpu and _elsewhere(config))
    asleep = beside and config.engine.colocate and on_gpu
    share = int(card * config.engine.memory_share)
    with_vllm = max(share, vllm_least(shape, config)) if card else weights
    if config.train.stale and not in_host:
        by_adapter = adapter and config.engine.name == "vllm" and not ranks
        held["the writer's copy"] = sum(adapter) * size if by_adapter else weights
    if config.train.lag and not on_gpu:  # pending weights are in host memory
        snapshot = sum(moved) * size
        if ranks:  # whole if rank 0 has them for all engines, else shards
            shards = config.runtime.name != "ray"
            snapshot = -(-snapshot // ranks) if shards else weights
        held["the weights of train.lag batches"] = config.train.lag * snapshot
    gathers = config.train.lag and ranks and not on_gpu and config.runtime.name != "ray"
    if beside and not asleep:
        held["vLLM"] = with_vllm
    # The step keeps one copy of all it updates on a GPU, and goes tensor by tensor on a CPU.
    step = (4 * trained if on_gpu else 8 * max(moved)) // max(1, ranks)
    # Gradients of one backward pass, before they go to the float32 copies; shards, once summed.
    fresh = trained * size // max(1, ranks) if size < 4 else 0
    phases = {
        ACTIVATIONS: _training_pass(shape, config, needs) + fresh,
        GENERATION: with_vllm
        if asleep
        else 0
        if apart
        else _generation(shape, config, needs, on_gpu),
        "the optimiser's step": step,
        "the writer's next weights, gathered": weights if gathers else 0,
    }
    return Estimate(shape.parameters, held, phases)


def _elsewhere(config: RunConfig) -> bool:
    """Whether the engine has a GPU of its own."""
    learners = "cuda:0" if config.model.device in ("auto", "cuda") else config.model.device
    return config.engine.device not in ("auto", learners)


def vllm_least(shape: Shape, config: RunConfig) -> int:
    """Return vLLM's least bytes: weights, an untied head, the cache of one longest request."""
    size = BYTES[config.model.dtype]
    head = 0 if shape.output else shape.width * shape.vocabulary
    slots = sum(token_limits(config))
    return (shape.parameters + head + slots * 2 * shape.key * shape.layers) * size


def token_limits(config: RunConfig) -> tuple[int, int]:
    """Return the most tokens of a prompt and of a response, which are resolved by now."""
    prompt, response = config.task.max_prompt_tokens, config.task.max_response_tokens
    if prompt is None or response is None:
        raise ValueError("task.max_prompt_tokens and task.max_response_tokens are not resolved")
    return prompt, response


def _training_pass(shape: Shape, config: RunConfig, needs: Needs) -> int:
    """Return the bytes that one micro-batch keeps for its backward pass, logits included."""
    together = needs.critic == "separate" and not needs.critic_apart
    backbones = 2 if together else 1

    def size(rows: int, prompts: int, time: int) -> int:
        logits = min(rows * time * shape.vocabulary, LOGITS_PER_CHUNK)
        saved = saved_bytes(shape, config, rows, prompts, time)
        return backbones * saved + LOSS_BLOCKS * 4 * logits

    return max(size(*micro_batch) for micro_batch in _largest_micro_batches(config))


def _largest_micro_batches(config: RunConfig) -> Iterator[tuple[int, int, int]]:
    """Yield (rows, prompts, response tokens) of the micro-batches that may take the most memory.

    With `train.micro_tokens`, more rows fit the shorter they are, each with its prompt's keys and
    values, so every length is yielded.
    """
    train, (prompt_tokens, response_tokens) = config.train, token_limits(config)
    if train.micro_tokens is None:
        rows = min(train.micro_batch, train.prompts * train.group_size)
        yield rows, min(rows, train.prompts), response_tokens
        return
    for time in range(1, response_tokens + 1):
        group = prompt_tokens + train.group_size * time
        prompts = min(train.prompts, train.micro_tokens // group)
        cut = (train.micro_tokens - prompt_tokens) // time
        rows = prompts * train.group_size or max(1, min(cut, train.group_size))
        yield rows, max(1, prompts), time


def saved_bytes(shape: Shape, config: RunConfig, rows: int, prompts: int, time: int) -> int:
    """Return the bytes that autograd saves in `response_hidden`.

    It is within 3 % for Llama, Qwen2 and Qwen3. `time`: response tokens of a row, after prompts as
    long as the task allows. With `model.checkpoint_activations` each layer keeps its input and its
    prompts' keys and values, and one layer at a time the rest.

    - Per token: each norm's float32 input, normalised form and output; queries and attention's
      result, with padding and without; four tensors of the feed-forward block; three numbers for
      each norm and head. With an adapter, norms are frozen and need no normalised form, and each A
      returns `rank` numbers.
    - Per slot of a row's context: keys and values, repeated for every head.
    - In every layer, the mask.
    """
    size, (width, _) = BYTES[config.model.dtype], token_limits(config)
    tokens = prompts * width + rows * time
    frozen = config.model.adapter == "lora"
    norm = (size if frozen else 2 * size) + 4
    token: float = 2 * norm * shape.width + (3 * shape.query + 4 * shape.inner) * size
    token += 4 * (2 + shape.heads)
    if frozen:
        token += config.model.adapter_rank * size * len(shape.linear) / shape.layers
    if shape.normed_heads:
        token += ((0 if frozen else size) + 4) * (shape.query + shape.key) + 8 * shape.heads
    slots = prompts * width + rows * (width + time)
    mask = (prompts * width**2 + rows * time * (width + time)) * size
    layer = int(tokens * token + slots * 2 * shape.query * size + mask)
    if not config.model.checkpoint_activations:
        return shape.layers * layer
    kept = (tokens * shape.width + prompts * width * 2 * shape.key) * size
    return shape.layers * kept + layer


def _generation(shape: Shape, config: RunConfig, needs: Needs, on_gpu: bool) -> int:
    """Return bytes of the KV cache, one layer's keys and values for every head, and the draw.

    Every row is counted with its own copy of its prompt's keys. Shared ones, on a CPU, are float32
    at any precision of the model.
    """
    if config.engine.name == "vllm":
        return 0  # vLLM plans its cache within engine.memory_share
    train, size = config.train, BYTES[config.model.dtype]
    problems = getattr(config.task, f"{config.eval.split}_problems")
    requests = max(train.prompts * train.group_size, problems * config.eval.samples)
    if needs.initial_value != "none":
        requests = max(requests, PREFETCHED_BATCHES * train.prompts * config.algo.q0_samples)
    rows = min(config.engine.batch_size, requests)
    slots = rows * sum(token_limits(config))
    cache = slots * 2 * shape.key * (size if on_gpu else 4) * shape.layers
    layer = slots * 2 * shape.query * size
    return cache + layer + DRAW_BYTES * rows * shape.vocabulary
