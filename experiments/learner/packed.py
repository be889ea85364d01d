"""Reading prompts and responses without their padding.

Embeddings, norms, linear layers and feed-forward blocks work token by token, so they are given one
row that holds the real tokens alone; only attention, which is ours during a pass (`attention.py`),
sees the block of padded rows. At responses of 5 to 42 tokens padding is a third of a block.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import AttentionInterface

from experiments.learner.attention import Attending, takes_attention
from experiments.learner.checkpointing import checkpointed, is_checkpointed
from experiments.learner.shards import is_sharded

if TYPE_CHECKING:
    from experiments.learner.scoring import Tokens

NAME = "spo_bench_packed"  # no mask is registered for it: the model is to make none


def can_pack(model: nn.Module) -> bool:
    """Whether the model takes our attention, and its weights are whole.

    Shards keep to padded rows: what FSDP waits for in the backward pass is arranged there.
    """
    return takes_attention(model) and not is_sharded(model)


class Block:
    """Where the real tokens of padded rows are, and what these rows attend to in each layer."""

    def __init__(self, mask: Tensor) -> None:
        """mask (rows, time) bool, true on real tokens; to their right padding, which none reads."""
        self.shape = mask.shape
        self.places = mask.flatten().nonzero().squeeze(1)
        # Padding repeats the token before it: finite, never read, and of zero gradient.
        self.sources = (mask.flatten().cumsum(0) - 1).clamp(min=0)
        self.seen: Tensor | None = None  # (rows, 1, time, keys) bool; None is causal alone
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}  # by layer: keys and values, as `pad` has

    def pad(self, packed: Tensor) -> Tensor:
        """(1, heads, tokens, width) → (rows, time, heads, width)."""
        return packed[0].transpose(0, 1).index_select(0, self.sources).unflatten(0, self.shape)

    def pack(self, padded: Tensor) -> Tensor:
        """(rows, time, …) → (tokens, …)."""
        return padded.flatten(0, 1).index_select(0, self.places)

    def context(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """What these rows attend to, (rows, keys, heads, width); prompts' is kept for responses.

        As it first was: what a layer that is run again finds would only take memory.
        """
        self.kept.setdefault(layer, (keys, values))
        return keys, values


class Responses(Block):
    """Rows that attend to their prompts before themselves."""

    def __init__(self, mask: Tensor, prompts: Block, prompt_mask: Tensor, of: Tensor) -> None:
        """`of` (rows,): each row's prompt; prompt_mask (prompts, width) as `prompts` has it."""
        super().__init__(mask)
        rows, time = mask.shape
        self.prompts, self.of = prompts, of
        causal = mask.new_ones(time, time).tril().expand(rows, -1, -1)
        prompt = prompt_mask[of].unsqueeze(1).expand(-1, time, -1)
        self.seen = torch.cat([prompt, causal], -1).unsqueeze(1)

    def context(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        pairs = zip(self.prompts.kept[layer], (keys, values), strict=True)
        keys, values = (torch.cat([of.index_select(0, self.of), own], 1) for of, own in pairs)
        return keys, values


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, _: None, block: Block, **how: Any
) -> tuple[Tensor, None]:
    """Attention of packed tokens, (1, heads, tokens, width) → (1, tokens, heads, width)."""
    keys, values = block.context(module.layer_idx, block.pad(key), block.pad(value))
    padded = (x.transpose(1, 2) for x in (block.pad(query), keys, values))
    found, _ = sdpa_attention_forward(module, *padded, block.seen, **how)
    return block.pack(found).unsqueeze(0), None


AttentionInterface.register(NAME, _attend)


def packed_hidden(model: nn.Module, tokens: Tokens) -> Tensor:
    """Last hidden states at the positions that predict the responses' tokens, (tokens, width).

    In the order of `tokens.mask`'s true entries. The model is one that `can_pack`.
    """
    before_last = tokens.prompt_mask[:, :-1]
    lengths = before_last.sum(-1, keepdim=True)
    steps = torch.arange(before_last.shape[1], device=lengths.device)
    on_left = steps < lengths
    prompts = Block(on_left)
    responses = Responses(tokens.mask, prompts, on_left, tokens.prompt_of)
    fed = torch.cat([tokens.prompts[tokens.prompt_of, -1:], tokens.responses[:, :-1]], 1)
    time = torch.arange(fed.shape[1], device=lengths.device)
    positions = lengths[tokens.prompt_of] + time
    passes = (
        (prompts, tokens.prompts[:, :-1][before_last], prompts.pack(steps.expand_as(on_left))),
        (responses, responses.pack(fed), responses.pack(positions)),
    )
    attending = Attending(model.config, NAME)
    again = checkpointed(model, attending) if is_checkpointed(model) else nullcontext()
    with attending, again:
        for block, ids, at in passes:
            output = model.base_model(
                input_ids=ids.unsqueeze(0),
                position_ids=at.unsqueeze(0),
                use_cache=False,
                block=block,
            )
    return output.last_hidden_state[0]
