"""The shape of a model that decides its floating-point operations (`run_dir/flops.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.pytorch_utils import Conv1D

from experiments.run_dir.flops import UNKNOWN, ModelFlops

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from experiments.policy.policy import Policy

MATRICES = (nn.Linear, Conv1D)  # each token meets all of their weights; GPT-2 has the second
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # keys of transformers' configs


def model_flops(model: PreTrainedModel) -> ModelFlops:
    """Return the shape of a causal model, with its adapter if it has one.

    UNKNOWN where a token does not meet every weight or attention is of another kind: mixtures of
    experts, compressed keys and values (MLA), layers with a state, models that read images.
    """
    head = model.get_output_embeddings()
    layers = [m for m in model.base_model.modules() if isinstance(m, MATRICES) and m is not head]
    if not _is_counted(model):
        return UNKNOWN
    return ModelFlops(
        blocks=sum(layer.weight.numel() for layer in layers),
        head=head.weight.numel(),
        trained_blocks=sum(layer.weight.numel() for layer in layers if layer.weight.requires_grad),
        trained_head=head.weight.numel() if head.weight.requires_grad else 0,
        attention=_attention(model.config),
    )


def critic_flops(backbone: Policy) -> ModelFlops:
    """Return the shape of a critic: a backbone with a scalar head in place of the output layer."""
    width = backbone.model.config.get_text_config().hidden_size
    return replace(model_flops(backbone.model), head=width, trained_head=width)


def _attention(config: Any) -> tuple[tuple[int, int | None], ...]:
    """Return heads × head width and the window of each layer."""
    heads = config.num_attention_heads
    width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    layers = DynamicCache(config=config).layers
    return tuple((width, getattr(layer, "sliding_window", None)) for layer in layers)


def _is_counted(model: PreTrainedModel) -> bool:
    config: Any = model.config
    if config.get_text_config() is not config or getattr(config, "kv_lora_rank", None):
        return False
    if any((getattr(config, name, None) or 0) > 1 for name in EXPERTS):
        return False
    kinds = {type(layer) for layer in DynamicCache(config=config).layers}
    if kinds - {DynamicLayer, DynamicSlidingWindowLayer}:
        return False
    known = (*MATRICES, nn.Embedding)
    matrices = {
        id(parameter)
        for module in model.base_model.modules()
        if isinstance(module, known)
        for parameter in module.parameters(recurse=False)
    }
    return all(p.dim() < 2 or id(p) in matrices for p in model.base_model.parameters())
