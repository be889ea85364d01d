"""What a learner costs: the memory of a run, and the floating-point operations of its passes.

A run that surely does not fit this machine is refused before its weights are read. What it holds
throughout (weights, gradients, AdamW's moments, reference, critic, the rollout policy's copy) is
exact. On top comes the larger of two phases that never overlap: the forward and backward pass of
one micro-batch, and generation. Their sizes are those of blocks built like Llama's and Qwen's at
the longest prompts and responses that the task allows.

Operations are charged to the budget as passes are made.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.pytorch_utils import Conv1D

from algorithms.base import Needs
from algorithms.logprobs import LOGITS_PER_CHUNK
from experiments.config.schema import RunConfig
from experiments.engines.kv_cache import padded_rows
from experiments.errors import UserError
from experiments.learner.batching import Tokens
from experiments.learner.modules import Modules
from experiments.policy import loading
from experiments.policy.policy import Policy
from experiments.run_dir.ledger import UNKNOWN, Ledger, ModelFlops, Text

GIB = 2**30
LOSS_BLOCKS = 5  # the most float32 blocks of logits in the backward pass of `chosen_logp`
ACTIVATIONS, GENERATION, VLLM = "activations", "keys and values while generating", "vLLM"
REMEDIES = {
    ACTIVATIONS: "lower train.micro_batch (or micro_tokens) or set checkpoint_activations=true",
    GENERATION: "lower engine.batch_size",
    VLLM: "lower engine.memory_share",
}
OTHERWISE = "set model.adapter=lora or model.dtype=bfloat16, or choose a smaller model"
MATRICES = (nn.Linear, Conv1D)  # each token meets all of their weights; GPT-2 has the second
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # keys of transformers' configs


# Memory


def estimate(
    model_config: Any, config: RunConfig, needs: Needs, on_gpu: bool, ranks: int = 0, card: int = 0
) -> dict[str, int]:
    """Return the bytes of a run with resolved lengths and dtype, by purpose; of phases the larger.

    `ranks`: of a sharded learner, of which this is one. `card`: the GPU's bytes in all, of which
    vLLM takes its share. Ray's engines have GPUs of their own.
    """
    with torch.device("meta"):  # no memory
        model = transformers.AutoModelForCausalLM.from_config(model_config)
    train, size = config.train, loading.DTYPES[config.model.dtype].itemsize
    lora, hf = config.model.adapter == "lora", config.engine.name == "hf"
    parameters = sum(parameter.numel() for parameter in model.parameters())
    head, tied = model.get_output_embeddings(), model.get_input_embeddings().weight
    linear = [m for m in model.modules() if isinstance(m, nn.Linear) and m is not head]
    adapter = config.model.adapter_rank * sum(m.in_features + m.out_features for m in linear)
    moved, weights = adapter if lora else parameters, parameters * size
    base = weights if ranks or not lora else 0  # adapted modules share the policy's base weights
    own = moved * size if lora else 0
    separate = needs.critic in ("separate", "log_probs")
    trains_head = needs.critic == "log_probs" or lora or head.weight is tied  # that of logits
    unused = 0 if trains_head else head.weight.numel()
    trained = moved + (moved - unused) * separate
    initial = needs.reference and train.reference_every is None
    initial = initial or train.missing_logprobs == "reference" or config.eval.kl_samples > 0
    copies = (train.reference_every is not None) + len(needs.copies)
    parts = {
        "policy": weights + own,
        "critic": (base + own) * separate,
        "gradients": 4 * trained,
        "AdamW's moments": 8 * trained,
        "float32 copies": 4 * trained * (size < 4),
        "the head in float32": 4 * head.weight.numel() * (config.model.head_dtype == "float32"),
        "reference": base * initial,
        "earlier weights": copies * (base + own),
    }
    parts = {name: part // max(1, ranks) for name, part in parts.items()}
    phases = {ACTIVATIONS: _training_pass(model_config, config, needs, size)}
    if not (config.runtime.name == "ray" and (on_gpu or ranks)):  # else engines are elsewhere
        parts["the engine's weights"] = weights * bool(ranks or (lora and hf))
        parts["the rollout policy's copy"] = weights * (train.keeps_rollout_copy and not lora)
        shares = config.engine.device in ("auto", "cuda:0", config.model.device) or not on_gpu
        if hf:
            phases[GENERATION] = _generation(model_config, config, size)
        elif shares:
            vllm = max(weights, int(card * config.engine.memory_share))
            (phases if config.engine.colocate and on_gpu else parts)[VLLM] = vllm
    largest = max(phases, key=lambda name: phases[name])
    return {name: part for name, part in parts.items() if part} | {largest: phases[largest]}


def _widths(model_config: Any) -> tuple[int, int, int]:
    """Return the widths of hidden states, of all queries, and of all keys."""
    text = model_config.get_text_config()
    heads = text.num_attention_heads
    head_width = getattr(text, "head_dim", None) or text.hidden_size // heads
    key_heads = getattr(text, "num_key_value_heads", None) or heads
    return text.hidden_size, heads * head_width, key_heads * head_width


def _training_pass(model_config: Any, config: RunConfig, needs: Needs, size: int) -> int:
    """Return the bytes that one micro-batch keeps for its backward pass, logits included.

    Per token: norms, queries, attention's result and the feed-forward block; per slot of a row's
    context: keys and values, repeated for every head; and the mask.
    """
    train, text = config.train, model_config.get_text_config()
    width, query, key = _widths(model_config)
    prompt = config.task.max_prompt_tokens or 0
    response = config.longest_response(config.task.turns)
    rows, prompts = min(train.micro_batch, train.prompts * train.group_size), train.prompts
    if train.micro_tokens is not None:
        rows, prompts = max(1, min((train.micro_tokens - prompt) // response, train.group_size)), 1
    prompts = min(rows, prompts)
    inner = getattr(text, "intermediate_size", None) or 4 * width
    tokens, slots = prompts * prompt + rows * response, (prompts + rows) * prompt + rows * response
    token = 2 * (2 * size + 4) * width + (3 * query + 4 * inner) * size
    mask = (prompts * prompt**2 + rows * response * (prompt + response)) * size
    layer = tokens * token + slots * 2 * query * size + mask
    saved = text.num_hidden_layers * layer
    if config.model.checkpoint_activations:  # one layer at a time; of others inputs and prompts
        kept = (tokens * width + prompts * prompt * 2 * key) * size
        saved = text.num_hidden_layers * kept + layer
    backbones = 2 if needs.critic == "separate" and not needs.critic_apart else 1
    logits = min(rows * response * text.vocab_size, LOGITS_PER_CHUNK)
    return backbones * saved + LOSS_BLOCKS * 4 * logits


def _generation(model_config: Any, config: RunConfig, size: int) -> int:
    """Return the bytes of the KV cache, and of one layer's keys and values for every head."""
    text, (_, query, key) = model_config.get_text_config(), _widths(model_config)
    problems = getattr(config.task, f"{config.eval.split}_problems")
    requests = max(config.train.prompts * config.train.group_size, problems * config.eval.samples)
    length = config.longest_response(max(config.task.turns, config.eval_turns))
    length += config.task.max_prompt_tokens or 0
    rows = min(config.engine.batch_size, requests)
    slots = (padded_rows(rows) if config.engine.static_cache else rows) * length
    return slots * 2 * (key * text.num_hidden_layers + query) * size


def check_memory(config: RunConfig, needs: Needs, ranks: int = 0) -> dict[str, Any]:
    """Return the estimate for run.json. Raises UserError if it exceeds the free memory."""
    device = loading.pick_device(config.model.device)
    on_gpu, free = device.type == "cuda", free_bytes(device)
    card = torch.cuda.mem_get_info(device)[1] if on_gpu else 0
    parts = estimate(loading.read_config(config.model), config, needs, on_gpu, ranks, card)
    if (total := sum(parts.values())) > free:
        sizes = sorted(parts.items(), key=lambda part: -part[1])
        listed = ", ".join(f"{name} {size / GIB:.2f}" for name, size in sizes)
        raise UserError(
            f"model.path={config.model.path}: this run needs about {total / GIB:.2f} GiB on "
            f"{device} ({listed}) and {free / GIB:.2f} GiB are free; "
            f"{REMEDIES.get(sizes[0][0], OTHERWISE)}"
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
    group = Path("/sys/fs/cgroup")
    try:
        left = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no version-2 control group, or no limit
        return int(available) * 1024
    return min(int(available) * 1024, left)


# Operations


class PassCosts:
    """Charges passes over whole batches; every rank knows all of a batch, and rank 0 is charged."""

    def __init__(self, modules: Modules, ledger: Ledger) -> None:
        policy, self.ledger, self.modules = modules.policy, ledger, modules
        self.policy = self.learned = model_flops(policy.model)  # without and with gradient
        # The initial policy has no adapter; moving references and averages have one.
        self.initial = model_flops(policy.adapter.base.model) if policy.adapter else self.policy
        backbone = modules.critic.backbone if modules.critic else policy
        has_logits = modules.critic is not None and modules.critic.head is None
        self.critic = model_flops(backbone.model) if has_logits else critic_flops(backbone)
        if modules.value_head is not None:
            both, value = self.policy, self.critic.head
            self.learned = replace(
                both, head=both.head + value, trained_head=both.trained_head + value
            )

    def scored(self, tokens: Tokens, policy: Policy) -> None:
        """Charge a pass for log-probs with this policy's weights."""
        model = self.initial if policy is self.modules.reference else self.policy
        self.ledger.charge_flops(model.forward(texts_of(tokens)))

    def valued(self, tokens: Tokens) -> None:
        """Charge a pass for the critic's values, without gradient."""
        self.ledger.charge_flops(self.critic.forward(texts_of(tokens)))

    def trained(self, tokens: Tokens, critic: bool = False) -> None:
        """Charge a pass forward and backward: of the policy, or of a critic that is separate."""
        if critic and self.modules.critic is None:
            return
        model, texts = self.critic if critic else self.learned, texts_of(tokens)
        self.ledger.charge_flops(model.forward(texts) + model.backward(texts))


def texts_of(tokens: Tokens) -> list[Text]:
    """Return the lengths of each prompt that has responses, and of these."""
    prompts, lengths = tokens.prompt_mask.sum(-1).tolist(), tokens.mask.sum(-1).tolist()
    responses: dict[int, list[int]] = {}
    for prompt, length in zip(tokens.prompt_of.tolist(), lengths, strict=True):
        responses.setdefault(prompt, []).append(length)
    return [Text(prompts[prompt], group) for prompt, group in responses.items()]


def model_flops(model: PreTrainedModel) -> ModelFlops:
    """Return the shape of a causal model, with its adapter if it has one.

    UNKNOWN where a token does not meet every weight or attention is of another kind: mixtures of
    experts, compressed keys and values (MLA), layers with a state, models that read images.
    """
    head = model.get_output_embeddings()
    layers = [m for m in model.base_model.modules() if isinstance(m, MATRICES) and m is not head]
    if not _is_counted(model):
        return UNKNOWN
    config, cache = model.config, DynamicCache(config=model.config).layers
    heads = config.num_attention_heads
    width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    return ModelFlops(
        blocks=sum(layer.weight.numel() for layer in layers),
        head=head.weight.numel(),
        trained_blocks=sum(layer.weight.numel() for layer in layers if layer.weight.requires_grad),
        trained_head=head.weight.numel() if head.weight.requires_grad else 0,
        attention=tuple((width, getattr(each, "sliding_window", None)) for each in cache),
    )


def critic_flops(backbone: Policy) -> ModelFlops:
    """Return the shape of a critic: a backbone with a scalar head in place of the output layer."""
    width = backbone.model.config.get_text_config().hidden_size
    return replace(model_flops(backbone.model), head=width, trained_head=width)


def _is_counted(model: PreTrainedModel) -> bool:
    config: Any = model.config
    kinds = {type(layer) for layer in DynamicCache(config=config).layers}
    if (
        config.get_text_config() is not config
        or getattr(config, "kv_lora_rank", None)
        or any((getattr(config, name, None) or 0) > 1 for name in EXPERTS)
        or kinds - {DynamicLayer, DynamicSlidingWindowLayer}
    ):
        return False
    modules = [m for m in model.base_model.modules() if isinstance(m, (*MATRICES, nn.Embedding))]
    known = {id(parameter) for m in modules for parameter in m.parameters(recurse=False)}
    return all(p.dim() < 2 or id(p) in known for p in model.base_model.parameters())
