"""Replacing a model's attention for a while.

transformers finds an attention function by name (`AttentionInterface.register`): the model's config
names it, and arguments of the model's forward pass reach it unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers.cache_utils import DynamicCache, DynamicLayer

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

# Architectures in which tokens mix only in attention that comes from the interface. Configs do not
# say so of others: some have convolutions, or masks of their own, beside it.
MODEL_TYPES = {"gemma", "granite", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3"}
MODEL_TYPES |= {"smollm3", "gpt2", "gpt_neox", "starcoder2"}


def can_override_attention(model: PreTrainedModel) -> bool:
    """Whether tokens mix only in full causal attention, and it can be replaced."""
    return (
        model.config.model_type in MODEL_TYPES
        and model.config._attn_implementation == "sdpa"
        and all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)
    )


class AttentionOverride:
    """A context, to be entered any number of times, in which a model uses the named attention."""

    def __init__(self, config: PreTrainedConfig, name: str) -> None:
        self.config, self.name = config, name

    def __enter__(self) -> None:
        self.before, self.config._attn_implementation = self.config._attn_implementation, self.name

    def __exit__(self, *_: object) -> None:
        self.config._attn_implementation = self.before
