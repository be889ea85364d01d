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
from typing import TYPE_CHECKING

from algorithms.base import Needs
from algorithms.logprobs import LOGITS_PER_CHUNK
from experiments.config.schema import PREFETCHED_BATCHES
from experiments.learner.shapes import Shape

if TYPE_CHECKING:
    from experiments.config.schema import RunConfig

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2}
ACTIVATIONS, GENERATION = "activations", "keys and values while generating"  # phases
LOSS_BLOCKS = 5  # the most float32 blocks of logits in the backward pass of `chosen_logp`
DRAW_BYTES = 40  # a logit while a token is drawn: sorted copies, their int64 order, sums


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


def estimate(
    shape: Shape, config: RunConfig, needs: Needs, on_gpu: bool, ranks: int = 0, card: int = 0
) -> Estimate:
    """Estimate the memory of a run with resolved lengths and dtype, or of one of its `ranks`.

    With ranks, the learner's memory is a shard and an engine's copy whole. Per-layer FSDP gathers
    are not counted; embedding and head are. Ray's engines have GPUs of their own, and with ranks
    the copies for them are in host memory. `card`: the GPU's bytes in all, of which vLLM takes its
    share; 0 counts vLLM's weights alone.
    """
    run = _Run(shape, config, needs, on_gpu, ranks, card)
    return Estimate(shape.parameters, run.learner() | run.engines(), run.phases())


class _Run:
    """The sizes of one run's parts, in bytes unless said otherwise."""

    def __init__(
        self, shape: Shape, config: RunConfig, needs: Needs, on_gpu: bool, ranks: int, card: int
    ) -> None:
        self.shape, self.config, self.needs = shape, config, needs
        self.on_gpu, self.ranks, self.card = on_gpu, ranks, card
        self.size = BYTES[config.model.dtype]
        self.weights = shape.parameters * self.size
        lora = config.model.adapter == "lora"
        adapter = shape.adapter(config.model.adapter_rank) if lora else ()
        self.lora, self.adapter = lora, sum(adapter) * self.size
        self.moved = adapter or shape.tensors  # elements of each tensor of the policy's optimiser
        # Adapted modules share the policy's base weights; sharded modules have their own.
        self.backbone = self.weights if ranks or not lora else 0
        self.ray_engines = on_gpu and config.runtime.name == "ray"
        beside = config.engine.name == "vllm" and not self.ray_engines
        self.vllm_beside = beside and not (on_gpu and _elsewhere(config))
        self.vllm_sleeps = self.vllm_beside and config.engine.colocate and on_gpu

    @property
    def trained(self) -> int:
        """Trained elements, the critic's included."""
        trained = sum(self.moved)
        if self.needs.critic == "separate":
            trained += sum(self.moved) - self._unused
        return trained + (self.shape.width + 1 if self.needs.critic != "none" else 0)

    @property
    def _unused(self) -> int:
        """Elements of a separate critic's head for logits, which it does not train."""
        return 0 if self.lora else self.shape.output

    @property
    def vllm(self) -> int:
        if not self.card:
            return self.weights
        share = int(self.card * self.config.engine.memory_share)
        return max(share, vllm_least(self.shape, self.config))

    def learner(self) -> dict[str, int]:
        """Return what a learner holds throughout, or one rank's shard of it."""
        needs, trained = self.needs, self.trained
        separate = needs.critic == "separate"
        head = 4 * (self.shape.width + 1)  # a critic's, always in float32
        held = {"policy": self.weights + self.adapter}
        if needs.critic != "none":
            held["critic"] = self.backbone + self.adapter + head if separate else head
        tensors = len(self.moved) + (2 if needs.critic != "none" else 0)
        tensors += len(self.moved) - bool(self._unused) if separate else 0
        held["gradients"] = 4 * trained  # float32, as all of the optimiser's tensors
        held["AdamW's moments"] = 8 * trained + 4 * tensors  # and a step count for each
        if self.size < 4:
            held["float32 copies"] = 4 * sum(self.moved) * (2 if separate else 1)
        train = self.config.train
        moves = train.reference_every is not None  # then it is a copy of earlier weights
        initial = (needs.reference and not moves) or train.missing_logprobs == "reference"
        if initial or self.config.eval.kl_samples:
            held["reference"] = self.backbone
        if "average" in needs.copies:
            exact = 4 * sum(self.moved) if self.size < 4 else 0
            held["the weights' moving average"] = self.backbone + self.adapter + exact
        if past := len({*needs.copies} - {"average"}) + (train.reference_every is not None):
            held["copies of earlier weights"] = past * (self.backbone + self.adapter)
        if self.ranks:
            held = {name: -(-size // self.ranks) for name, size in held.items()}
            held["gathered weights"] = 2 * self.shape.width * self.shape.vocabulary * self.size
        return held

    def engines(self) -> dict[str, int]:
        """Return what engines hold throughout, and the copies of weights for them."""
        held = {}
        engine, train = self.config.engine.name, self.config.train
        in_host = bool(self.ranks) and self.ray_engines
        if (self.ranks or (self.lora and engine == "hf")) and not in_host:
            held["the engine's weights"] = self.weights
        if self.ranks and self.needs.initial_value != "none" and not in_host:
            held["the base that answers for initial values"] = self.weights
        if train.keeps_rollout_copy and not in_host:
            by_adapter = self.lora and engine == "vllm" and not self.ranks
            held["the rollout policy's copy"] = self.adapter if by_adapter else self.weights
        on_device = self.lora and not self.ranks  # other pending weights are in host memory
        if train.lag and (on_device or not self.on_gpu):
            snapshot = sum(self.moved) * self.size
            if self.ranks:  # whole if rank 0 has them for all engines, else shards
                shards = self.config.runtime.name != "ray"
                snapshot = -(-snapshot // self.ranks) if shards else self.weights
            held["the weights of train.lag batches"] = train.lag * snapshot
        if self.vllm_beside and not self.vllm_sleeps:
            held["vLLM"] = self.vllm
        return held

    def phases(self) -> dict[str, int]:
        """Return what each phase takes on top."""
        shape, config, trained = self.shape, self.config, self.trained
        # The step keeps one copy of all it updates on a GPU, and goes tensor by tensor on a CPU.
        step = (4 * trained if self.on_gpu else 8 * max(self.moved)) // max(1, self.ranks)
        # Gradients of one backward pass before they go to the float32 copies; shards, once summed.
        fresh = trained * self.size // max(1, self.ranks) if self.size < 4 else 0
        generation = 0
        if self.vllm_sleeps:
            generation = self.vllm
        elif not self.ray_engines:
            generation = _generation(shape, config, self.needs, self.on_gpu)
        gathers = config.train.lag and self.ranks and not self.on_gpu
        gathers = gathers and config.runtime.name != "ray"
        return {
            ACTIVATIONS: _training_pass(shape, config, self.needs) + fresh,
            GENERATION: generation,
            "the optimiser's step": step,
            "the rollout policy's next weights, gathered": self.weights if gathers else 0,
        }


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


def token_limits(config: RunConfig, trained: bool = False) -> tuple[int, int]:
    """Return the most tokens of a prompt and behind it, which are resolved by now.

    `trained`: of what is trained on; otherwise evaluations count, too.
    """
    prompt = config.task.max_prompt_tokens
    if prompt is None:
        raise ValueError("task.max_prompt_tokens is not resolved")
    turns = config.task.turns if trained else max(config.task.turns, config.eval_turns)
    return prompt, config.longest_response(turns)


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
    train, (prompt_tokens, response_tokens) = config.train, token_limits(config, trained=True)
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
    kept = 0  # conversations of which keys and values are kept between two answers, in two parts
    if max(config.task.turns, config.eval_turns) > 1:
        groups = max(rows, train.group_size, config.eval.samples)
        kept = min(requests, 2 * groups)
    slots = rows * sum(token_limits(config))
    cache = slots * 2 * shape.key * (size if on_gpu else 4) * shape.layers
    cache += cache // rows * kept
    layer = slots * 2 * shape.query * size
    return cache + layer + DRAW_BYTES * rows * shape.vocabulary
