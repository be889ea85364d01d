"""What our sampling loop has read: keys and values of the prompts and of what was written so far.

A row holds what all responses to a prompt that are equal so far have written; where they part, the
row branches. `OwnKeys` gives every row keys and values of its prompt, for any attention that
transformers has. `SharedKeys` keeps each prompt's once, however many rows it has: otherwise eight
rows read copies of it eight times at every step. Their attention is ours, for processors only: it
is written in plain operations, in float32, and takes memory for products that a GPU's kernels never
hold.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin

from experiments.policy.attention_override import Attending, takes_attention

SHARED = "spo_bench_shared_prompts"  # the attention's name in transformers
PRODUCTS = 2**18  # float32 numbers that own keys and queries are multiplied to at once: 1 MiB


class Layer(CacheLayerMixin):
    """What transformers asks of a layer's cache; `filled` positions of it are written."""

    is_sliding = False

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.filled = steps, 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.filled + query_length, 0

    def get_seq_length(self) -> int:
        return self.filled


class OwnLayer(Layer):
    """One layer's keys and values: allocated for whole responses, read up to the present.

    (room, heads, width + steps, dim), of which the first rows are in use.
    """

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        rows, heads, width, _ = key_states.shape
        self.keys = key_states.new_zeros(rows, heads, width + self.steps, key_states.shape[-1])
        self.values = value_states.new_zeros(*self.keys.shape[:3], value_states.shape[-1])
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, end = len(key_states), self.filled + key_states.shape[2]
        self.keys[:rows, :, self.filled : end] = key_states
        self.values[:rows, :, self.filled : end] = value_states
        self.filled = end
        return self.keys[:rows, :, :end], self.values[:rows, :, :end]

    def select(self, rows: Tensor, room: int) -> None:
        """Keep these rows, in this order, with room for as many."""
        self.keys, self.values = (
            self._select(held, rows, room) for held in (self.keys, self.values)
        )

    def _select(self, held: Tensor, rows: Tensor, room: int) -> Tensor:
        """What is filled, whole rows at once: `held[rows]` looks each number up, and all of it."""
        kept = held.new_empty(room, *held.shape[1:])
        filled = kept[: len(rows), :, : self.filled]
        torch.index_select(held[:, :, : self.filled], 0, rows, out=filled)
        return kept

    def branch(self, rows: int, parents: Tensor) -> None:
        """Copies of these rows come after the first `rows`."""
        for held in (self.keys, self.values):
            filled = held[:, :, : self.filled]
            filled[rows : rows + len(parents)] = filled.index_select(0, parents)

    def get_max_length(self) -> int:
        return self.keys.shape[2]


class OwnKeys:
    """Every row has keys and values of its own, its prompt's among them."""

    def __init__(self, layers: int, real: Tensor, steps: int) -> None:
        self.cache = Cache(layers=[OwnLayer(steps) for _ in range(layers)])
        self.visible = torch.cat([real, real.new_ones(len(real), steps)], 1)

    def begin(self, room: int) -> None:
        """The prompts are read, a row each; there are never to be more rows than `room`."""
        self.select(torch.arange(len(self.visible), device=self.visible.device), room)

    def select(self, rows: Tensor, room: int) -> None:
        """Keep these rows, in this order, with room for as many."""
        for layer in self.cache.layers:
            layer.select(rows, room)
        self.visible = self.visible[rows]

    def branch(self, parents: Tensor) -> None:
        """Copies of these rows come after the others."""
        for layer in self.cache.layers:
            layer.branch(len(self.visible), parents)
        self.visible = torch.cat([self.visible, self.visible[parents]])

    def given(self) -> dict[str, Any]:
        """What the model is given besides the rows' next tokens."""
        mask = self.visible[:, None, None, : self.cache.layers[0].filled + 1]
        return {"past_key_values": self.cache, "attention_mask": mask}

    def reading(self, model: nn.Module) -> AbstractContextManager[None]:
        """While responses are written."""
        return nullcontext()


class SharedLayer(Layer):
    """One layer: the prompts' keys and values, and apart from them the rows' own, step by step.

    prompt_keys (prompts, heads, width, dim), keys (steps, room, heads, dim), of which the first
    rows are in use: what one step has written is one block.
    """

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        else:
            at, rows = self.filled - self.prompt_keys.shape[2], len(key_states)
            self.keys[at, :rows] = key_states[:, :, 0]
            self.values[at, :rows] = value_states[:, :, 0]
            self.filled += 1
        return key_states, value_states

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The first that come are the prompts'."""
        self.prompt_keys, self.prompt_values = key_states.float(), value_states.float()
        self.keys = self.values = None
        self.filled, self.is_initialized = key_states.shape[2], True

    def begin(self, room: int) -> None:
        keys, values = self.prompt_keys, self.prompt_values
        self.keys = keys.new_empty(self.steps, room, keys.shape[1], keys.shape[3])
        self.values = values.new_empty(self.steps, room, values.shape[1], values.shape[3])

    def written(self, rows: int) -> tuple[Tensor, Tensor]:
        """Keys and values (steps, rows, heads, dim) of what the first rows have written."""
        steps = self.filled - self.prompt_keys.shape[2]
        return self.keys[:steps, :rows], self.values[:steps, :rows]

    def select(self, rows: Tensor, room: int, prompts: Tensor | None) -> None:
        """Keep these rows, and these prompts where they are not all."""
        steps = self.filled - self.prompt_keys.shape[2]
        for name in ("keys", "values"):
            held = getattr(self, name)
            kept = held.new_empty(self.steps, room, *held.shape[2:])
            kept[:steps, : len(rows)] = held[:steps].index_select(1, rows)
            setattr(self, name, kept)
        if prompts is not None:
            self.prompt_keys = self.prompt_keys.index_select(0, prompts)
            self.prompt_values = self.prompt_values.index_select(0, prompts)

    def branch(self, rows: int, parents: Tensor) -> None:
        """Copies of these rows come after the first `rows`."""
        for held in self.written(self.keys.shape[1]):
            held[:, rows : rows + len(parents)] = held.index_select(1, parents)

    def get_max_length(self) -> int:
        return self.prompt_keys.shape[2] + self.steps


class SharedKeys:
    """A prompt's keys and values once for all its rows.

    Queries are laid out as (prompts, the most rows that one has) to be multiplied with their
    prompt's keys; `cell` (rows,) is where in that each row is.
    """

    def __init__(self, layers: int, real: Tensor, steps: int) -> None:
        self.cache = Cache(layers=[SharedLayer(steps) for _ in range(layers)])
        self.hidden = torch.zeros(real.shape).masked_fill(~real, -torch.inf)
        self.one = torch.ones(1, 1, 1, 1, dtype=torch.bool)

    def begin(self, room: int) -> None:
        """The prompts are read, a row each; there are never to be more rows than `room`."""
        for layer in self.cache.layers:
            layer.begin(room)
        self._lay_out(torch.arange(len(self.hidden)))

    def select(self, rows: Tensor, room: int) -> None:
        """Keep these rows, in this order, with room for as many."""
        used, prompt_of = self.prompt_of[rows].unique(return_inverse=True)
        prompts = used if len(used) < len(self.hidden) else None
        for layer in self.cache.layers:
            layer.select(rows, room, prompts)
        if prompts is not None:
            self.hidden = self.hidden[prompts]
        self._lay_out(prompt_of)

    def branch(self, parents: Tensor) -> None:
        """Copies of these rows come after the others."""
        for layer in self.cache.layers:
            layer.branch(len(self.prompt_of), parents)
        self._lay_out(torch.cat([self.prompt_of, self.prompt_of[parents]]))

    def _lay_out(self, prompt_of: Tensor) -> None:
        counts = prompt_of.bincount(minlength=len(self.hidden))
        self.prompt_of, self.most = prompt_of, int(counts.max()) if len(prompt_of) else 0
        by_prompt, number = prompt_of.argsort(stable=True), torch.arange(len(prompt_of))
        first = (counts.cumsum(0) - counts)[prompt_of]
        self.cell = prompt_of * self.most - first
        self.cell[by_prompt] += number
        self.full = torch.equal(self.cell, number) and len(number) == len(self.hidden) * self.most

    def given(self) -> dict[str, Any]:
        # A mask of four dimensions is handed through; this one is not read.
        return {"past_key_values": self.cache, "attention_mask": self.one, "shared": self}

    def reading(self, model: nn.Module) -> AbstractContextManager[None]:
        """While responses are written, by a model that the learner may share."""
        return Attending(model.config, SHARED)

    def grid(self, of_rows: Tensor) -> Tensor:
        """(rows, heads, n, d) → (prompts, heads, most × n, d), 0 where a prompt has fewer rows."""
        _, heads, n, d = of_rows.shape
        if not self.full:
            empty = of_rows.new_zeros(len(self.hidden) * self.most, heads, n, d)
            of_rows = empty.index_copy_(0, self.cell, of_rows)
        laid = of_rows.view(-1, self.most, heads, n, d).transpose(1, 2)
        return laid.reshape(-1, heads, self.most * n, d)

    def rows(self, grid: Tensor, n: int) -> Tensor:
        """What `grid` laid out, (rows, heads, n, d) again."""
        prompts, heads, _, d = grid.shape
        of_cells = grid.view(prompts, heads, self.most, n, d).transpose(1, 2)
        of_cells = of_cells.reshape(-1, heads, n, d)
        return of_cells if self.full else of_cells.index_select(0, self.cell)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    shared: SharedKeys | None = None,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Attention of one new token of each row, query (rows, heads, 1, dim) → (rows, 1, heads, dim).

    softmax over the prompt's and the row's own keys together; the two are only read apart.
    """
    layer = shared.cache.layers[module.layer_idx]
    keys, values = layer.written(len(query))
    heads = layer.prompt_keys.shape[1]  # of keys: several of the queries' may share one
    q = query.float() * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    q = q.view(len(query), heads, -1, q.shape[-1])
    n = q.shape[2]
    # Laid out: what was written is less to move than what prompts are.
    of_prompt = shared.grid(q) @ layer.prompt_keys.transpose(2, 3) + shared.hidden[:, None, None]
    scores = torch.cat([of_prompt, shared.grid(_scores(q, keys))], -1)
    to_prompt, to_own = scores.softmax(-1).split([of_prompt.shape[-1], len(keys)], -1)
    mixed = shared.rows(to_prompt @ layer.prompt_values, n)
    mixed = mixed + _mixed(shared.rows(to_own, n), values)
    return mixed.reshape(len(query), 1, -1, mixed.shape[-1]).to(query.dtype), None


def _scores(query: Tensor, keys: Tensor) -> Tensor:
    """query (rows, heads, n, dim), keys (steps, rows, heads, dim) → (rows, heads, n, steps)."""
    parts = keys.unsqueeze(3).split(max(1, PRODUCTS // query.numel()))
    return torch.cat([(part * query).sum(-1) for part in parts]).permute(1, 2, 3, 0)


def _mixed(weights: Tensor, values: Tensor) -> Tensor:
    """weights (rows, heads, n, steps), values (steps, rows, heads, dim) → (rows, heads, n, dim)."""
    weights = weights.permute(3, 0, 1, 2).unsqueeze(-1)
    size = max(1, PRODUCTS // (values[0].numel() * weights.shape[3]))
    parts = zip(weights.split(size), values.unsqueeze(3).split(size), strict=True)
    return sum((of * part).sum(0) for of, part in parts)


AttentionInterface.register(SHARED, attend)


def keys_for(model: nn.Module, real: Tensor, steps: int) -> OwnKeys | SharedKeys:
    """Shared where the model takes another attention, and memory is a processor's.

    `real` (prompts, width) bool: where a prompt's tokens stand, on the right; `steps` come after.
    """
    shared = real.device.type == "cpu" and takes_attention(model)
    layers = model.config.get_text_config().num_hidden_layers
    return (SharedKeys if shared else OwnKeys)(layers, real, steps)
