"""Forward passes without padding, which compute shared prefixes of responses once.

Embeddings, norms, linear layers and feed-forward blocks work token by token, so they get one row
that holds the real tokens alone. Only attention, which is ours during a pass
(`policy/attention_override.py`), sees a block of padded rows. For responses of 5 to 42 tokens,
padding is a third of a block.

A position's state depends on the prompt and the response's tokens up to it. If responses to a
prompt share a prefix, one of them is read, the others use its states, and it gets the gradients of
all. A quarter of the tokens of the bundled model's responses are shared. Models are in evaluation
mode here: with dropout no two rows would be alike.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import AttentionInterface

from experiments.learner.batching import Tokens
from experiments.policy.activation_checkpointing import checkpointed, is_checkpointed
from experiments.policy.attention_override import AttentionOverride, can_override_attention
from experiments.policy.policy import Policy

NAME = "spo_bench_packed"  # no mask function has this name, so the model makes no mask
PAIRS_PER_CHUNK = 2**24  # pairs of tokens compared at a time: 16 MiB


def can_pack(policy: Policy) -> bool:
    """Whether the model takes our attention and its weights are not sharded.

    Sharded policies use padded rows, where FSDP's backward pass gets the gradients it waits for.
    """
    return can_override_attention(policy.model) and not policy.sharded


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


AttentionInterface.register(NAME, _attend)


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
    override = AttentionOverride(model.config, NAME)
    again = checkpointed(model, override) if is_checkpointed(policy) else nullcontext()
    with override, again:
        for block, ids, at in passes:
            output = model.base_model(
                input_ids=ids.unsqueeze(0),
                position_ids=at.unsqueeze(0),
                use_cache=False,
                block=block,
            )
    hidden = output.last_hidden_state[0]
    return responses.unshare(hidden) if has_tokens else hidden[:0]  # the graph's: gradients are 0
