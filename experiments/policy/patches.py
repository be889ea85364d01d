"""Replacing how a model computes for a while: its attention, or what its blocks keep.

transformers finds an attention function by name (`AttentionInterface.register`): the model's config
names it, and arguments of the model's forward pass reach it unchanged.

With activation checkpointing a block keeps its input and is computed again in the backward pass
(Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174). transformers'
own implementation switches off the cache through which responses read their prompt
(`learner/forward.py`). So torch's is put around each block. A recomputed block finds the cache, and
the stored values of packed passes, unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.modeling_layers import GradientCheckpointingLayer

from experiments.errors import UserError
from experiments.policy.policy import Policy

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


def checkpoint_activations(policy: Policy) -> None:
    """Let the policy, and copies made of it, keep no activations inside their blocks.

    Raises UserError if the model's blocks cannot be recomputed.
    """
    model = policy.model
    kinds = {type(layer) for layer in DynamicCache(config=model.config).layers} - {DynamicLayer}
    reason = f"its cache has layers of {', '.join(sorted(kind.__name__ for kind in kinds))}"
    if not _blocks(model):
        reason = "transformers lists no blocks that can be recomputed"
    if kinds or not _blocks(model):
        raise UserError(
            f"model.checkpoint_activations=true: model.path={model.config.name_or_path} does not "
            f"support it: {reason}; use false, and train.micro_batch or train.micro_tokens for "
            "less memory"
        )
    policy.checkpoint_activations = True


def is_checkpointed(policy: Policy) -> bool:
    """Whether a forward pass is to keep no activations inside the blocks."""
    return torch.is_grad_enabled() and policy.checkpoint_activations


@contextmanager
def checkpointed(
    policy: Policy,
    recomputing: AbstractContextManager[None] = nullcontext(),  # noqa: B008 it has no state
) -> Iterator[None]:
    """A context in which the model's blocks keep only their inputs, if that is chosen.

    `recomputing` is a context for computing a block again; it is entered each time.
    """
    blocks = _blocks(policy.model) if is_checkpointed(policy) else []
    for block in blocks:
        # Models are in evaluation mode: without dropout there is no random state to preserve.
        block.forward = partial(
            checkpoint,
            block.forward,
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=lambda: (nullcontext(), recomputing),
        )
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


def _blocks(model: PreTrainedModel) -> list[nn.Module]:
    modules = model.base_model.modules()
    return [module for module in modules if isinstance(module, GradientCheckpointingLayer)]
