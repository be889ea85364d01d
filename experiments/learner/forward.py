"""Scoring responses with a model: hidden states, log-probs and values at response tokens.

A prompt is read once, however many responses it has. Its keys and values are computed with
gradient, and all its responses attend to them. For eight short responses to a long prompt that is
several times fewer tokens than one row for each.

Where the model takes our attention, passes have no padding, and compute shared prefixes of
responses once. Embeddings, norms, linear layers and feed-forward blocks work token by token, so
they get one row that holds the real tokens alone. Only attention sees a block of padded rows. For
responses of 5 to 42 tokens, padding is a third of a block.

A position's state depends on the prompt and the response's tokens up to it. If responses to a
prompt share a prefix, one of them is read, the others use its states, and it gets the gradients of
all. A quarter of the tokens of the bundled model's responses are shared. Models are in evaluation
mode here: with dropout no two rows would be alike.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import AttentionInterface

from algorithms.base import PolicyOutput
from algorithms.logprobs import Entropy, chosen_logp
from experiments.learner.batching import Tokens
from experiments.policy import patches
from experiments.policy.policy import Policy

PACKED = "spo_bench_packed"  # no mask function has this name, so the model makes no mask
PAIRS_PER_CHUNK = 2**24  # pairs of tokens compared at a time: 16 MiB


def can_pack(policy: Policy) -> bool:
    """Whether the model takes our attention and its weights are not sharded.

    Sharded policies use padded rows, where FSDP's backward pass gets the gradients it waits for.
    """
    return patches.can_override_attention(policy.model) and not policy.sharded


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
    """A backbone of its own with a scalar head that starts at zero.

    With `temperature` it has no head, and its values are its log-probs of the policy's tokens.
    """

    def __init__(self, backbone: Policy, temperature: float | None = None) -> None:
        super().__init__()
        self.backbone, self.temperature = backbone, temperature
        self.model = backbone.model  # registers its parameters as the critic's
        self.head = scalar_head(backbone) if temperature is None else None

    def forward(self, tokens: Tokens) -> Tensor:
        """Return values of the states before each of the policy's tokens, (batch, time).

        0 elsewhere.
        """
        if self.head is None:
            assert self.temperature is not None
            return score(self.backbone, tokens, self.temperature, entropy="none").logp
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


# Padded rows


def _padded_hidden(policy: Policy, tokens: Tokens) -> Tensor:
    """Read padded prompts, then the responses over the prompts' cache → (batch, time, width)."""
    config, backbone = policy.model.config, policy.model.base_model
    cache: Cache = DynamicCache(config=config)
    if patches.is_checkpointed(policy):
        layers = config.get_text_config().num_hidden_layers
        cache = Cache(layers=[PromptLayer() for _ in range(layers)])
    shared_mask = tokens.prompt_mask[:, :-1]
    with patches.checkpointed(policy):
        read = backbone(
            input_ids=tokens.prompts[:, :-1],
            attention_mask=shared_mask.long(),
            position_ids=(shared_mask.cumsum(-1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
        )
        if isinstance(cache, DynamicCache):
            cache.batch_select_indices(tokens.prompt_of)
        else:
            cache = Cache(layers=[ResponseLayer(each, tokens.prompt_of) for each in cache.layers])
        last = tokens.prompts[tokens.prompt_of, -1:]
        first_position = tokens.prompt_mask.sum(-1)[tokens.prompt_of].unsqueeze(-1) - 1
        fed = torch.ones_like(tokens.mask)  # no real token attends to the right padding after it
        output = backbone(
            input_ids=torch.cat([last, tokens.responses[:, :-1]], 1),
            attention_mask=torch.cat([shared_mask[tokens.prompt_of], fed], 1).long(),
            position_ids=first_position + torch.arange(fed.shape[1], device=last.device),
            past_key_values=cache,
            use_cache=True,
        )
    if policy.sharded and torch.is_grad_enabled():
        # FSDP sums a layer's gradients over the ranks once the layer's output has a gradient. Of
        # the prompts only keys and values are used, so this term gives their output one.
        return output.last_hidden_state + 0 * read.last_hidden_state.sum()
    return output.last_hidden_state


class PromptLayer(DynamicLayer):
    """A layer's keys and values of the prompts, kept from their first computation."""

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


class ResponseLayer(PromptLayer):
    """Keys and values that responses read: their prompt's before their own; nothing is kept."""

    def __init__(self, prompts: Any, rows: Tensor) -> None:
        """`rows`: each response's prompt."""
        super().__init__()
        self.lazy_initialization(prompts.keys, prompts.values)
        self.rows = rows

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        keys = torch.cat([self.keys[self.rows], key_states], 2)
        return keys, torch.cat([self.values[self.rows], value_states], 2)


# Packed rows


class Block:
    """Padded rows of which some tokens are read, and the keys that the rows attend to by layer."""

    def __init__(self, mask: Tensor, first: Tensor | None = None) -> None:
        """`mask` (rows, time) bool: the real tokens, padded on the right.

        `first` (rows, time), right at real tokens: the place, counted through all rows, of the
        token that is read for this one; by default its own.
        """
        self.shape = mask.shape
        real = mask.flatten()
        every = torch.arange(len(real), device=real.device)
        first = every if first is None else first.flatten()
        self.places = (real & (first == every)).nonzero().squeeze(1)
        number = torch.zeros_like(every)
        number[self.places] = every[: len(self.places)]
        # Padding repeats the token before it: finite, never read, and of zero gradient.
        self.sources = number[first[every.where(real, 0).cummax(0).values]]
        self.visible: Tensor | None = None  # (rows, 1, time, keys) bool; None: causal attention
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}  # layer → padded keys and values

    def pad(self, packed: Tensor) -> Tensor:
        """(1, heads, tokens, width) → (rows, time, heads, width)."""
        return packed[0].transpose(0, 1).index_select(0, self.sources).unflatten(0, self.shape)

    def pack(self, padded: Tensor) -> Tensor:
        """(rows, time, …) → (tokens that are read, …)."""
        return padded.flatten(0, 1).index_select(0, self.places)

    def context(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values that these rows attend to, (rows, keys, heads, width).

        The first are kept for the responses; a layer that runs again keeps nothing more.
        """
        self.kept.setdefault(layer, (keys, values))
        return keys, values


class Responses(Block):
    """Rows that attend to their prompts before themselves."""

    def __init__(self, tokens: Tokens, prompts: Block, prompt_mask: Tensor) -> None:
        """prompt_mask (prompts, width) as `prompts` has it."""
        mask = tokens.mask
        super().__init__(mask, first_alike(tokens))
        rows, time = mask.shape
        self.prompts, self.prompt_of = prompts, tokens.prompt_of
        self.real = mask.flatten()
        causal = mask.new_ones(time, time).tril().expand(rows, -1, -1)
        prompt = prompt_mask[self.prompt_of].unsqueeze(1).expand(-1, time, -1)
        self.visible = torch.cat([prompt, causal], -1).unsqueeze(1)

    def context(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return each row's prompt's keys and values before its own."""
        prompt_keys, prompt_values = self.prompts.kept[layer]
        keys = torch.cat([prompt_keys.index_select(0, self.prompt_of), keys], 1)
        values = torch.cat([prompt_values.index_select(0, self.prompt_of), values], 1)
        return keys, values

    def unshare(self, packed: Tensor) -> Tensor:
        """(tokens that are read, width) → (tokens, width), all tokens of every row."""
        return packed.index_select(0, self.sources[self.real])


def first_alike(tokens: Tokens) -> Tensor:
    """Return (batch, time): the first place, counted through all rows, with the same prefix.

    The same prefix is the same prompt, and the same t tokens of a response before position t. Right
    where `tokens.mask` is true.
    """
    rows, time = tokens.mask.shape
    device, first_rows = tokens.mask.device, []
    last, at = tokens.mask.sum(-1) - 1, torch.arange(time, device=device)
    for part in torch.arange(rows, device=device).split(max(1, PAIRS_PER_CHUNK // (rows * time))):
        differ = tokens.responses[part].unsqueeze(1) != tokens.responses
        differ[..., -1] = True  # the last token has no position after it
        alike = differ.view(torch.uint8).argmax(-1)  # the number of first tokens in common, then
        alike = torch.minimum(alike, last)  # the last position with a common prefix
        alike[tokens.prompt_of[part].unsqueeze(1) != tokens.prompt_of] = -1
        first_rows.append((alike.unsqueeze(-1) >= at).view(torch.uint8).argmax(1))
    return torch.cat(first_rows) * time + at


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, _: None, block: Block, **options: Any
) -> tuple[Tensor, None]:
    """Attention of packed tokens, (1, heads, tokens, width) → (1, tokens, heads, width)."""
    keys, values = block.context(module.layer_idx, block.pad(key), block.pad(value))
    mixed, _ = sdpa_attention_forward(
        module,
        block.pad(query).transpose(1, 2),
        keys.transpose(1, 2),
        values.transpose(1, 2),
        block.visible,
        **options,
    )
    return block.pack(mixed).unsqueeze(0), None


AttentionInterface.register(PACKED, _attend)


def packed_hidden(policy: Policy, tokens: Tokens) -> Tensor:
    """Return last hidden states at the positions that predict response tokens, (tokens, width).

    In the order of `tokens.mask`'s true entries, for a policy that `can_pack`.
    """
    model = policy.model
    before_last = tokens.prompt_mask[:, :-1]
    lengths = before_last.sum(-1, keepdim=True)
    steps = torch.arange(before_last.shape[1], device=lengths.device)
    on_left = steps < lengths
    prompts = Block(on_left)
    ids, at = tokens.prompts[:, :-1][before_last], prompts.pack(steps.expand_as(on_left))
    passes: list[tuple[Block, Tensor, Tensor]] = [(prompts, ids, at)]
    if has_tokens := bool(tokens.mask.any()):
        responses = Responses(tokens, prompts, on_left)
        fed = torch.cat([tokens.prompts[tokens.prompt_of, -1:], tokens.responses[:, :-1]], 1)
        time = torch.arange(fed.shape[1], device=lengths.device)
        positions = lengths[tokens.prompt_of] + time
        passes.append((responses, responses.pack(fed), responses.pack(positions)))
    override = patches.AttentionOverride(model.config, PACKED)
    with override, patches.checkpointed(policy, override):
        for block, ids, at in passes:
            output = model.base_model(
                input_ids=ids.unsqueeze(0),
                position_ids=at.unsqueeze(0),
                use_cache=False,
                block=block,
            )
    hidden = output.last_hidden_state[0]
    return responses.unshare(hidden) if has_tokens else hidden[:0]  # the graph's: gradients are 0
