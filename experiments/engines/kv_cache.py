"""KV caches of our generation loop: keys and values of the prompts and of the generated tokens.

A row of the model's batch stands for all responses to a prompt that are equal so far. When they
draw different tokens, the row branches. `OwnKeys` gives every row its own copy of the prompt's keys
and values, and works with any attention in transformers; `shared_keys.py` has the other cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Layer(CacheLayerMixin):
    """A layer's cache, as transformers uses it; `filled` counts the positions that it holds."""

    is_sliding = False
    keys: Tensor  # None in transformers until it is initialised
    values: Tensor
    earlier: tuple[Tensor, Tensor] | None = None  # what it holds before it is initialised

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.filled = steps, 0

    def resume(self, keys: Tensor, values: Tensor) -> None:
        """Start with keys and values (rows, heads, width, dim) of tokens before the first read."""
        self.earlier, self.filled = (keys, values), keys.shape[2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.filled + query_length, 0

    def get_seq_length(self) -> int:
        return self.filled


class OwnLayer(Layer):
    """A layer's keys and values, allocated for whole responses and read as far as they are filled.

    (max_rows, heads, width + steps, dim), of which the first rows are in use.
    """

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        rows, heads, width, _ = key_states.shape
        size = self.filled + width + self.steps
        self.keys = key_states.new_zeros(rows, heads, size, key_states.shape[-1])
        self.values = value_states.new_zeros(*self.keys.shape[:3], value_states.shape[-1])
        if self.earlier is not None:
            self.keys[:, :, : self.filled], self.values[:, :, : self.filled] = self.earlier
            self.earlier = None
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

    def select(self, rows: Tensor, max_rows: int) -> None:
        """Keep these rows, in this order, with space for `max_rows`."""
        self.keys = self._select(self.keys, rows, max_rows)
        self.values = self._select(self.values, rows, max_rows)

    def _select(self, states: Tensor, rows: Tensor, max_rows: int) -> Tensor:
        """Copy what is filled, by whole rows: `states[rows]` would look up each number, of all."""
        kept = states.new_empty(max_rows, *states.shape[1:])
        filled = kept[: len(rows), :, : self.filled]
        torch.index_select(states[:, :, : self.filled], 0, rows, out=filled)
        return kept

    def branch(self, rows: int, parents: Tensor) -> None:
        """Append copies of the rows `parents` after the first `rows`."""
        for states in (self.keys, self.values):
            filled = states[:, :, : self.filled]
            filled[rows : rows + len(parents)] = filled.index_select(0, parents)

    def states(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values (rows, heads, filled, dim) of these rows."""
        keys, values = self.keys[:, :, : self.filled], self.values[:, :, : self.filled]
        return keys.index_select(0, rows), values.index_select(0, rows)

    def get_max_length(self) -> int:
        return self.keys.shape[2]


class KVCache(ABC):
    """Keys and values of the rows of one generated batch."""

    cache: Cache  # of transformers
    layers: Sequence[Layer]

    def resume(self, states: Tensor) -> None:
        """Start with keys and values of tokens before the first that is read, as `states` gives."""
        for layer, keys, values in zip(self.layers, states[::2], states[1::2], strict=True):
            layer.resume(keys, values)

    @abstractmethod
    def states(self, rows: Tensor) -> Tensor:
        """Return keys and values, (2 × layers, rows, heads, filled, dim), of these rows."""

    @abstractmethod
    def begin(self, max_rows: int) -> None:
        """Start generating: the prompts are read, a row each, and rows never exceed `max_rows`."""

    @abstractmethod
    def select(self, rows: Tensor, max_rows: int) -> None:
        """Keep these rows, in this order, with space for `max_rows`."""

    @abstractmethod
    def branch(self, parents: Tensor) -> None:
        """Append copies of the rows `parents` after the others."""

    @abstractmethod
    def model_inputs(self) -> dict[str, Any]:
        """Return the model's arguments besides the rows' next tokens."""

    @abstractmethod
    def attention(self, model: PreTrainedModel) -> AbstractContextManager[None]:
        """Return the context in which the model generates with this cache."""


class OwnKeys(KVCache):
    """A cache in which every row has its own keys and values, its prompt's included.

    `full_attention`: every layer attends to all earlier tokens, so one mask serves all layers.
    Otherwise transformers makes each layer's mask, e.g. with a sliding window, at every step.
    """

    layers: Sequence[OwnLayer]

    def __init__(self, layers: int, mask: Tensor, steps: int, full_attention: bool = True) -> None:
        self.full_attention = full_attention
        self.layers = [OwnLayer(steps) for _ in range(layers)]
        self.cache = Cache(layers=list(self.layers))
        self.visible = torch.cat([mask, mask.new_ones(len(mask), steps)], 1)

    def begin(self, max_rows: int) -> None:
        self.select(torch.arange(len(self.visible), device=self.visible.device), max_rows)

    def select(self, rows: Tensor, max_rows: int) -> None:
        for layer in self.layers:
            layer.select(rows, max_rows)
        self.visible = self.visible[rows]

    def states(self, rows: Tensor) -> Tensor:
        return torch.stack([part for layer in self.layers for part in layer.states(rows)])

    def branch(self, parents: Tensor) -> None:
        for layer in self.layers:
            layer.branch(len(self.visible), parents)
        self.visible = torch.cat([self.visible, self.visible[parents]])

    def model_inputs(self) -> dict[str, Any]:
        mask = self.visible[:, : self.layers[0].filled + 1]
        if self.full_attention:  # transformers passes a four-dimensional mask through
            mask = mask[:, None, None]
        return {"past_key_values": self.cache, "attention_mask": mask}

    def attention(self, model: PreTrainedModel) -> AbstractContextManager[None]:
        return nullcontext()
