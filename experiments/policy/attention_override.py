"""Putting another attention into a model, for a while.

transformers takes one by name (`AttentionInterface.register`): the model's config names it, and
what it needs of a pass comes down to it as an argument of the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers.cache_utils import DynamicCache, DynamicLayer

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig

# Blocks in which attention alone mixes tokens, and comes from the interface. Nothing in a config
# says so of others: some have convolutions, or masks of their own, beside it.
KINDS = {"gemma", "granite", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3", "smollm3"}
KINDS |= {"gpt2", "gpt_neox", "starcoder2"}


def takes_attention(model: nn.Module) -> bool:
    """Whether the model's tokens meet in full causal attention alone, and another can be put in."""
    return (
        model.config.model_type in KINDS
        and model.config._attn_implementation == "sdpa"
        and all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)
    )


class Attending:
    """In this block only, and as often as need be, the attention of that name."""

    def __init__(self, config: PreTrainedConfig, name: str) -> None:
        self.config, self.name = config, name

    def __enter__(self) -> None:
        self.before, self.config._attn_implementation = self.config._attn_implementation, self.name

    def __exit__(self, *_: object) -> None:
        self.config._attn_implementation = self.before
