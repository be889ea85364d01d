"""Activation checkpointing: a block keeps its input and is computed again in the backward pass.

After Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174. transformers'
own implementation switches off the cache through which responses read their prompt
(`learner/forward.py`). So torch's is put around each block. A recomputed block finds the cache, and
the stored values of packed passes (`learner/packed_attention.py`), unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer
from transformers.modeling_layers import GradientCheckpointingLayer

from experiments.errors import UserError
from experiments.policy.policy import Policy

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
    model: PreTrainedModel,
    recomputing: AbstractContextManager[None] = nullcontext(),  # noqa: B008 it has no state
) -> Iterator[None]:
    """A context in which the model's blocks keep only their inputs.

    `recomputing` is a context for computing a block again; it is entered each time.
    """
    blocks = _blocks(model)
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


class PromptLayer(CacheLayerMixin):
    """A layer's keys and values of the prompts, kept from their first computation."""

    is_sliding = False
    keys: Tensor  # None in transformers until it is initialised
    values: Tensor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys, self.values, self.is_initialized = key_states, value_states, True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self.keys.shape[2] if self.is_initialized else 0

    def get_max_length(self) -> int:
        return -1  # no maximum


class ResponseLayer(PromptLayer):
    """Keys and values that responses read: their prompt's before their own; nothing is kept."""

    def __init__(self, prompts: PromptLayer, rows: Tensor) -> None:
        """`rows`: each response's prompt."""
        super().__init__()
        self.lazy_initialization(prompts.keys, prompts.values)
        self.rows = rows

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        keys = torch.cat([self.keys[self.rows], key_states], 2)
        return keys, torch.cat([self.values[self.rows], value_states], 2)


def prompt_cache(model: PreTrainedModel) -> Cache:
    """Return the cache for the pass over the prompts."""
    layers = model.config.get_text_config().num_hidden_layers
    return Cache(layers=[PromptLayer() for _ in range(layers)])


def response_cache(prompts: Cache, rows: Tensor) -> Cache:
    """Return the cache for the pass over the responses; `rows` are their rows of `prompts`."""
    layers = [layer for layer in prompts.layers if isinstance(layer, PromptLayer)]
    return Cache(layers=[ResponseLayer(layer, rows) for layer in layers])
