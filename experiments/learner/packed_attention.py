"""Reading prompts and responses without their padding, and what responses share once.

Embeddings, norms, linear layers and feed-forward blocks work token by token, so they are given one
row that holds the real tokens alone; only attention, which is ours during a pass (`attention.py`),
sees the block of padded rows. At responses of 5 to 42 tokens padding is a third of a block.

And all that has been read at a position is the prompt and the response up to there: where responses
to a prompt begin alike, one of them is read and the others have its states, and through these it
has their gradients. Of the bundled model's responses a quarter of the tokens are such. Models are
in evaluation mode here: with dropout no two rows would be alike.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import AttentionInterface

from experiments.policy.activation_checkpointing import checkpointed, is_checkpointed
from experiments.policy.attention_override import Attending, takes_attention
from experiments.policy.policy import Policy

if TYPE_CHECKING:
    from experiments.learner.forward import Tokens

NAME = "spo_bench_packed"  # no mask is registered for it: the model is to make none
PAIRS_PER_CHUNK = 2**24  # of tokens that are compared at a time: 16 MiB


def can_pack(policy: Policy) -> bool:
    """Whether the model takes our attention and its weights are not sharded.

    Sharded policies use padded rows, where FSDP's backward pass gets the gradients it waits for.
    """
    return takes_attention(policy.model) and not policy.sharded


class Block:
    """Where the tokens of padded rows are that are read, and what rows attend to in each layer."""

    def __init__(self, mask: Tensor, first: Tensor | None = None) -> None:
        """mask (rows, time) bool, true on real tokens; to their right padding, which none reads.

        `first` (rows, time), of real tokens: the place, counted through all rows, of the one that
        is read for this one; by default its own.
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
        self.seen: Tensor | None = None  # (rows, 1, time, keys) bool; None is causal alone
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}  # by layer: keys and values, as `pad` has

    def pad(self, packed: Tensor) -> Tensor:
        """(1, heads, tokens, width) → (rows, time, heads, width)."""
        return packed[0].transpose(0, 1).index_select(0, self.sources).unflatten(0, self.shape)

    def pack(self, padded: Tensor) -> Tensor:
        """(rows, time, …) → (tokens that are read, …)."""
        return padded.flatten(0, 1).index_select(0, self.places)

    def context(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """What these rows attend to, (rows, keys, heads, width); prompts' is kept for responses.

        As it first was: what a layer that is run again finds would only take memory.
        """
        self.kept.setdefault(layer, (keys, values))
        return keys, values


class Responses(Block):
    """Rows that attend to their prompts before themselves."""

    def __init__(self, tokens: Tokens, prompts: Block, prompt_mask: Tensor) -> None:
        """prompt_mask (prompts, width) as `prompts` has it."""
        mask, of = tokens.mask, tokens.prompt_of
        super().__init__(mask, first_alike(tokens))
        rows, time = mask.shape
        self.prompts, self.of = prompts, of
        self.real = mask.flatten()
        causal = mask.new_ones(time, time).tril().expand(rows, -1, -1)
        prompt = prompt_mask[of].unsqueeze(1).expand(-1, time, -1)
        self.seen = torch.cat([prompt, causal], -1).unsqueeze(1)

    def context(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        pairs = zip(self.prompts.kept[layer], (keys, values), strict=True)
        keys, values = (torch.cat([of.index_select(0, self.of), own], 1) for of, own in pairs)
        return keys, values

    def unshare(self, packed: Tensor) -> Tensor:
        """(tokens that are read, width) → (tokens, width), of every row its own."""
        return packed.index_select(0, self.sources[self.real])


def first_alike(tokens: Tokens) -> Tensor:
    """(batch, time): the first place, counted through all rows, at which the same has been read.

    That is the same prompt, and the same t tokens of a response before position t. Right where
    `tokens.mask` is true.
    """
    rows, time = tokens.mask.shape
    device, found = tokens.mask.device, []
    last, at = tokens.mask.sum(-1) - 1, torch.arange(time, device=device)
    for part in torch.arange(rows, device=device).split(max(1, PAIRS_PER_CHUNK // (rows * time))):
        differ = tokens.responses[part].unsqueeze(1) != tokens.responses
        differ[..., -1] = True  # the last token has no position after it
        alike = differ.view(torch.uint8).argmax(-1)  # tokens that two rows have in common, then
        alike = torch.minimum(alike, last)  # the last position that both have so
        alike[tokens.prompt_of[part].unsqueeze(1) != tokens.prompt_of] = -1
        found.append((alike.unsqueeze(-1) >= at).view(torch.uint8).argmax(1))
    return torch.cat(found) * time + at


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, _: None, block: Block, **how: Any
) -> tuple[Tensor, None]:
    """Attention of packed tokens, (1, heads, tokens, width) → (1, tokens, heads, width)."""
    keys, values = block.context(module.layer_idx, block.pad(key), block.pad(value))
    padded = (x.transpose(1, 2) for x in (block.pad(query), keys, values))
    found, _ = sdpa_attention_forward(module, *padded, block.seen, **how)
    return block.pack(found).unsqueeze(0), None


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
    responses = Responses(tokens, prompts, on_left)
    fed = torch.cat([tokens.prompts[tokens.prompt_of, -1:], tokens.responses[:, :-1]], 1)
    time = torch.arange(fed.shape[1], device=lengths.device)
    positions = lengths[tokens.prompt_of] + time
    passes = (
        (prompts, tokens.prompts[:, :-1][before_last], prompts.pack(steps.expand_as(on_left))),
        (responses, responses.pack(fed), responses.pack(positions)),
    )
    attending = Attending(model.config, NAME)
    again = checkpointed(model, attending) if is_checkpointed(policy) else nullcontext()
    with attending, again:
        for block, ids, at in passes:
            output = model.base_model(
                input_ids=ids.unsqueeze(0),
                position_ids=at.unsqueeze(0),
                use_cache=False,
                block=block,
            )
    return responses.unshare(output.last_hidden_state[0])
