"""What our sampling loop has read: keys and values of the prompts and of what was written so far.

`OwnKeys` gives every response keys and values of its prompt, for any attention that transformers
has. `SharedKeys` keeps each prompt's once, however many responses it has: otherwise eight responses
read copies of it eight times at every step. Their attention is ours, for processors only: it is
written in plain operations, in float32, and takes memory for products that a GPU's kernels never
hold.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin

from experiments.learner.attention import Attending, takes_attention

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
    """One layer's keys and values: allocated for the whole response, read up to the present."""

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
        end = self.filled + key_states.shape[2]
        self.keys[:, :, self.filled : end] = key_states
        self.values[:, :, self.filled : end] = value_states
        self.filled = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order; a row may come several times."""
        self.keys, self.values = self._select(self.keys, rows), self._select(self.values, rows)

    def _select(self, held: Tensor, rows: Tensor) -> Tensor:
        """What is filled, whole rows at once: `held[rows]` looks each number up, and all of it."""
        kept = held.new_empty(len(rows), *held.shape[1:])
        filled = (slice(None), slice(None), slice(self.filled))
        torch.index_select(held[filled], 0, rows, out=kept[filled])
        return kept

    def get_max_length(self) -> int:
        return self.keys.shape[2]


class OwnKeys:
    """Every row has keys and values of its own, its prompt's among them."""

    def __init__(self, layers: int, real: Tensor, steps: int) -> None:
        self.cache = Cache(layers=[OwnLayer(steps) for _ in range(layers)])
        self.visible = torch.cat([real, real.new_ones(len(real), steps)], 1)

    def begin(self, prompt_of: Tensor) -> None:
        """The prompts are read; a row for each response, prompt_of (rows,)."""
        self.select(prompt_of)

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        for layer in self.cache.layers:
            layer.select(rows)
        self.visible = self.visible[rows]

    def given(self) -> dict[str, Any]:
        """What the model is given besides the rows' next tokens."""
        mask = self.visible[:, None, None, : self.cache.layers[0].filled + 1]
        return {"past_key_values": self.cache, "attention_mask": mask}

    def reading(self, model: nn.Module) -> AbstractContextManager[None]:
        """While responses are written."""
        return nullcontext()


class SharedLayer(Layer):
    """One layer: the prompts' keys and values, and apart from them the rows' own, step by step.

    prompt_keys (prompts, heads, width, dim), keys (steps, rows, heads, dim): what one step has
    written is one block, and what all have written up to a step is one too.
    """

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        else:
            at = self.filled - self.prompt_keys.shape[2]
            self.keys[at], self.values[at] = key_states[:, :, 0], value_states[:, :, 0]
            self.filled += 1
        return key_states, value_states

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The first that come are the prompts'."""
        self.prompt_keys, self.prompt_values = key_states.float(), value_states.float()
        self.keys = self.values = None
        self.filled, self.is_initialized = key_states.shape[2], True

    def begin(self, rows: int) -> None:
        keys, values = self.prompt_keys, self.prompt_values
        self.keys = keys.new_empty(self.steps, rows, keys.shape[1], keys.shape[3])
        self.values = values.new_empty(self.steps, rows, values.shape[1], values.shape[3])

    def select(self, rows: Tensor, prompts: Tensor | None) -> None:
        """Keep these rows, and these prompts where they are not all."""
        written = self.filled - self.prompt_keys.shape[2]
        for name in ("keys", "values"):
            held = getattr(self, name)
            kept = held.new_empty(self.steps, len(rows), *held.shape[2:])
            torch.index_select(held[:written], 1, rows, out=kept[:written])
            setattr(self, name, kept)
        if prompts is not None:
            self.prompt_keys = self.prompt_keys.index_select(0, prompts)
            self.prompt_values = self.prompt_values.index_select(0, prompts)

    def get_max_length(self) -> int:
        return self.prompt_keys.shape[2] + self.steps


class SharedKeys:
    """A prompt's keys and values once for all its rows, which come one after the other.

    Queries are laid out as (prompts, the most rows that one has) to be multiplied with their
    prompt's keys; `cell` (rows,) is where in that each row is.
    """

    def __init__(self, layers: int, real: Tensor, steps: int) -> None:
        self.cache = Cache(layers=[SharedLayer(steps) for _ in range(layers)])
        self.hidden = torch.zeros(real.shape).masked_fill(~real, -torch.inf)
        self.one = torch.ones(1, 1, 1, 1, dtype=torch.bool)

    def begin(self, prompt_of: Tensor) -> None:
        for layer in self.cache.layers:
            layer.begin(len(prompt_of))
        self._lay_out(prompt_of)

    def select(self, rows: Tensor) -> None:
        used, prompt_of = self.prompt_of[rows].unique_consecutive(return_inverse=True)
        prompts = used if len(used) < len(self.hidden) else None
        for layer in self.cache.layers:
            layer.select(rows, prompts)
        if prompts is not None:
            self.hidden = self.hidden[prompts]
        self._lay_out(prompt_of)

    def _lay_out(self, prompt_of: Tensor) -> None:
        counts = prompt_of.bincount(minlength=len(self.hidden))
        self.prompt_of, self.most = prompt_of, int(counts.max()) if len(prompt_of) else 0
        first = (counts.cumsum(0) - counts)[prompt_of]
        self.cell = prompt_of * self.most + torch.arange(len(prompt_of)) - first
        self.full = len(self.cell) == len(self.hidden) * self.most

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
    own = layer.filled - layer.prompt_keys.shape[2]
    heads = layer.prompt_keys.shape[1]  # of keys: several of the queries' may share one
    q = query.float() * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    q = q.view(len(query), heads, -1, q.shape[-1])
    n = q.shape[2]
    of_prompt = shared.grid(q) @ layer.prompt_keys.transpose(2, 3)
    of_prompt = shared.rows(of_prompt + shared.hidden[:, None, None], n)
    scores = torch.cat([of_prompt, _scores(q, layer.keys[:own])], -1)
    to_prompt, to_own = scores.softmax(-1).split([of_prompt.shape[-1], own], -1)
    mixed = shared.rows(shared.grid(to_prompt) @ layer.prompt_values, n)
    mixed = mixed + _mixed(to_own, layer.values[:own])
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
