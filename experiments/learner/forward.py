"""Scoring responses with a model: hidden states, log-probs and values at response tokens.

A prompt is read once, however many responses it has. Its keys and values are computed with
gradient, and all its responses attend to them. For eight short responses to a long prompt that is
several times fewer tokens than one row for each.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache

from algorithms.base import PolicyOutput
from algorithms.logprobs import Entropy, chosen_logp
from experiments.learner.batching import Tokens
from experiments.learner.packed_attention import can_pack, packed_hidden
from experiments.policy.activation_checkpointing import (
    checkpointed,
    is_checkpointed,
    prompt_cache,
    response_cache,
)
from experiments.policy.policy import Policy


def response_hidden(policy: Policy, tokens: Tokens) -> Tensor:
    """Return the last hidden states at the positions that predict the response's tokens.

    (batch, time, width): position t has read the prompt and the response's first t tokens. Prompts
    hold at least two tokens: the last one is read together with the response.
    """
    if can_pack(policy):
        return spread(packed_hidden(policy, tokens), tokens.mask)
    return _padded_hidden(policy, tokens)


def token_hidden(policy: Policy, tokens: Tokens) -> Tensor:
    """Return `response_hidden` at the policy's tokens alone, (tokens, width), row after row."""
    if not can_pack(policy):
        return _padded_hidden(policy, tokens)[tokens.own]
    hidden = packed_hidden(policy, tokens)
    return hidden if tokens.own is tokens.mask else hidden[tokens.own[tokens.mask]]


def spread(values: Tensor, mask: Tensor) -> Tensor:
    """Put values at the true entries of the mask, (tokens, …) → (batch, time, …), 0 elsewhere."""
    blank = values.new_zeros(mask.numel(), *values.shape[1:])
    places = mask.flatten().nonzero().squeeze(1)
    return blank.index_copy(0, places, values).unflatten(0, mask.shape)


def _padded_hidden(policy: Policy, tokens: Tokens) -> Tensor:
    model = policy.model
    if is_checkpointed(policy):
        with checkpointed(model):
            return _read_padded(policy, tokens, prompt_cache(model))
    return _read_padded(policy, tokens, DynamicCache(config=model.config))


def _read_padded(policy: Policy, tokens: Tokens, cache: Cache) -> Tensor:
    """Read padded prompts, then the responses over the prompts' cache → (batch, time, width)."""
    backbone = policy.model.base_model
    shared_mask = tokens.prompt_mask[:, :-1]
    shared_positions = (shared_mask.cumsum(-1) - 1).clamp(min=0)
    read = backbone(
        input_ids=tokens.prompts[:, :-1],
        attention_mask=shared_mask.long(),
        position_ids=shared_positions,
        past_key_values=cache,
        use_cache=True,
    )
    if isinstance(cache, DynamicCache):
        cache.batch_select_indices(tokens.prompt_of)
    else:
        cache = response_cache(cache, tokens.prompt_of)
    last = tokens.prompts[tokens.prompt_of, -1:]
    time = tokens.responses.shape[1]
    first_position = tokens.prompt_mask.sum(-1)[tokens.prompt_of].unsqueeze(-1) - 1
    fed = torch.ones_like(tokens.mask)  # no real token attends to the right padding after it
    output = backbone(
        input_ids=torch.cat([last, tokens.responses[:, :-1]], 1),
        attention_mask=torch.cat([shared_mask[tokens.prompt_of], fed], 1).long(),
        position_ids=first_position + torch.arange(time, device=last.device),
        past_key_values=cache,
        use_cache=True,
    )
    if policy.sharded and torch.is_grad_enabled():
        # FSDP sums a layer's gradients over the ranks once the layer's output has a gradient. Of
        # the prompts only keys and values are used, so this term gives their output one.
        return output.last_hidden_state + 0 * read.last_hidden_state.sum()
    return output.last_hidden_state


def score(
    policy: Policy,
    tokens: Tokens,
    temperature: float,
    value_head: nn.Module | None = None,
    entropy: Entropy = "value",
) -> PolicyOutput:
    """Return log-probs of the policy's tokens and entropies, (batch, time), 0 elsewhere.

    With `value_head` (a shared critic) also the values of the states before each token, likewise.
    """
    hidden = token_hidden(policy, tokens)
    head = policy.model.get_output_embeddings()
    chosen = tokens.responses[tokens.own]
    logp, entropies = chosen_logp(hidden, head, chosen, temperature, entropy)
    return PolicyOutput(
        logp=spread(logp, tokens.own),
        entropy=spread(entropies, tokens.own),
        values=None if value_head is None else values_of(value_head, hidden, tokens.own),
    )


def values_of(head: nn.Module, hidden: Tensor, mask: Tensor) -> Tensor:
    """Return a scalar head's values of hidden states, (tokens, width) → (batch, time)."""
    return spread(head(hidden.float()).squeeze(-1), mask)


class Critic(nn.Module):
    """A backbone of its own with a scalar head that starts at zero."""

    def __init__(self, backbone: Policy) -> None:
        super().__init__()
        self.backbone = backbone
        self.model = backbone.model  # registers its parameters as the critic's
        self.head = scalar_head(backbone)

    def forward(self, tokens: Tokens) -> Tensor:
        """Return values of the states before each of the policy's tokens, (batch, time).

        0 elsewhere.
        """
        return values_of(self.head, token_hidden(self.backbone, tokens), tokens.own)


def scalar_head(backbone: Policy) -> nn.Linear:
    """Return a head hidden → value, zero at the start so that the first returns are not fought.

    It is float32 at any model precision: bfloat16 has no number between 0.500 and 0.504.
    """
    width = backbone.model.config.get_text_config().hidden_size
    head = nn.Linear(width, 1, device=backbone.device, dtype=torch.float32)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head
