"""KV caches of our generation loop: keys and values of the prompts and of the generated tokens.

A row of the model's batch stands for all responses to a prompt that are equal so far. When they
draw different tokens, the row branches.

`OwnKeys` gives every row its own copy of the prompt's keys and values, and works with any attention
in transformers. `SharedKeys` keeps each prompt's once for all its rows: otherwise eight rows would
read eight copies at every step. Its attention is ours and for CPUs only: it is written in plain
operations, in float32, and needs memory for products that a GPU's kernels never materialise.

`StaticKeys` holds keys and values at fixed addresses, so that a GPU can replay a step of the model
as a CUDA graph. Launching a small model's kernels one by one takes longer than running them.

`KeptKeys` keeps keys and values between the answers of a conversation. They are found by their
tokens, so nothing is read in the place of something else. What is not found is read anew, which
changes no more than rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from experiments.policy.patches import AttentionOverride, can_override_attention

SHARED = "spo_bench_shared_prompts"  # the attention's name in transformers
TokenIds = tuple[int, ...]
ROWS, COLUMNS = 16, 256  # of a graph: ROWS · 2^n, and multiples of COLUMNS
PRODUCTS = 2**18  # float32 products of queries and generated keys at a time: 1 MiB


class Layer(DynamicLayer):
    """A layer's cache, as transformers uses it; `filled` counts the positions that it holds."""

    keys: Tensor  # None in transformers until it is initialised
    values: Tensor
    earlier: tuple[Tensor, Tensor] | None = None  # what it holds before it is initialised

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.filled = steps, 0

    def resume(self, keys: Tensor, values: Tensor) -> None:
        """Start with keys and values (rows, heads, width, dim) of tokens before the first read."""
        self.earlier, self.filled = (keys, values), keys.shape[2]

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


class StaticLayer(OwnLayer):
    """A layer's keys and values at fixed addresses, (rows, heads, columns, dim).

    `at` (1,) is the column that `update` writes, `columns` the number that attention then reads.
    """

    def __init__(self, at: Tensor) -> None:
        super().__init__(0)
        self.at, self.columns = at, 0

    def take(self, read: OwnLayer, rows: Tensor, shape: tuple[int, int] | None = None) -> None:
        """Copy these rows of `read`, which may be this layer, to the first rows.

        With `shape` (rows, columns) all else is 0, and is allocated first if nothing is.
        """
        if not self.is_initialized and shape is not None:
            like = (part[:1, :, :1] for part in (read.keys, read.values))
            self.lazy_initialization(*(one.expand(shape[0], -1, shape[1], -1) for one in like))
        self.filled = read.filled
        for own, states in ((self.keys, read.keys), (self.values, read.values)):
            chosen = states[:, :, : self.filled].index_select(0, rows)
            if shape is not None:  # a masked NaN would still be one
                own.zero_()
            own[: len(rows), :, : self.filled] = chosen

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        keys, values = self.keys[: len(key_states)], self.values[: len(key_states)]
        keys.index_copy_(2, self.at, key_states)
        values.index_copy_(2, self.at, value_states)
        return keys[:, :, : self.columns], values[:, :, : self.columns]


class SharedLayer(Layer):
    """A layer's keys and values: the prompts' once, and apart from them the rows' own, by step.

    prompt_keys (prompts, heads, width, dim), keys (steps, max_rows, heads, dim), of which the first
    rows are in use. All that one step adds is one block.
    """

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            resumed = self.earlier is not None
            self.lazy_initialization(key_states, value_states)
            if resumed:
                dtype = key_states.dtype
                return self.prompt_keys.to(dtype), self.prompt_values.to(dtype)
        else:
            at, rows = self.filled - self.prompt_keys.shape[2], len(key_states)
            self.keys[at, :rows] = key_states[:, :, 0]
            self.values[at, :rows] = value_states[:, :, 0]
            self.filled += 1
        return key_states, value_states

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take the prompts' keys and values, which come first."""
        keys, values = key_states.float(), value_states.float()
        if self.earlier is not None:
            keys, values = (torch.cat(p, 2) for p in zip(self.earlier, (keys, values), strict=True))
            self.earlier = None
        self.prompt_keys, self.prompt_values = keys, values
        self.filled, self.is_initialized = keys.shape[2], True

    def begin(self, max_rows: int) -> None:
        keys, values = self.prompt_keys, self.prompt_values
        self.keys = keys.new_empty(self.steps, max_rows, keys.shape[1], keys.shape[3])
        self.values = values.new_empty(self.steps, max_rows, values.shape[1], values.shape[3])

    def generated(self, rows: int) -> tuple[Tensor, Tensor]:
        """Return keys and values (steps, rows, heads, dim) of the first rows' generated tokens."""
        steps = self.filled - self.prompt_keys.shape[2]
        return self.keys[:steps, :rows], self.values[:steps, :rows]

    def states(self, rows: Tensor, prompts: Tensor) -> Iterator[Tensor]:
        """Yield keys, then values, (rows, heads, filled, dim) of these rows and their prompts."""
        own = self.generated(self.keys.shape[1])
        for read, part in zip((self.prompt_keys, self.prompt_values), own, strict=True):
            generated = part.index_select(1, rows).permute(1, 2, 0, 3)
            yield torch.cat([read.index_select(0, prompts), generated], 2)

    def select(self, rows: Tensor, max_rows: int, prompts: Tensor | None) -> None:
        """Keep these rows, and these prompts; None keeps all prompts."""
        self.keys = self._select(self.keys, rows, max_rows)
        self.values = self._select(self.values, rows, max_rows)
        if prompts is not None:
            self.prompt_keys = self.prompt_keys.index_select(0, prompts)
            self.prompt_values = self.prompt_values.index_select(0, prompts)

    def _select(self, states: Tensor, rows: Tensor, max_rows: int) -> Tensor:
        steps = self.filled - self.prompt_keys.shape[2]
        kept = states.new_empty(self.steps, max_rows, *states.shape[2:])
        kept[:steps, : len(rows)] = states[:steps].index_select(1, rows)
        return kept

    def branch(self, rows: int, parents: Tensor) -> None:
        """Append copies of the rows `parents` after the first `rows`."""
        for states in self.generated(self.keys.shape[1]):
            states[:, rows : rows + len(parents)] = states.index_select(1, parents)


class KVCache:
    """Keys and values of the rows of one generated batch.

    `begin(max_rows)` starts generating, when the prompts are read, a row each; rows never exceed
    `max_rows`. `select` keeps rows, `branch` appends copies of rows, `states` returns what they
    hold, (2 × layers, rows, heads, filled, dim).
    """

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers, self.cache = layers, Cache(layers=list(layers))

    def resume(self, states: Tensor) -> None:
        """Start with keys and values of tokens before the first that is read, as `states` gives."""
        for layer, keys, values in zip(self.layers, states[::2], states[1::2], strict=True):
            layer.resume(keys, values)

    def attention(self, model: PreTrainedModel) -> AbstractContextManager[None]:
        """Return the context in which the model generates with this cache."""
        return nullcontext()

    def decode(self, model: Any, tokens: Tensor, position: Tensor) -> Tensor:
        """Feed tokens (rows,) at `position` (rows, 1) → the next logits (rows, vocabulary)."""
        given = {"input_ids": tokens.unsqueeze(-1), "position_ids": position}
        return model(**given, use_cache=True, **self.model_inputs()).logits[:, -1]

    def model_inputs(self) -> dict[str, Any]:
        """Return the model's arguments for this cache."""
        raise NotImplementedError


class OwnKeys(KVCache):
    """A cache in which every row has its own keys and values, its prompt's included.

    `full_attention`: every layer attends to all earlier tokens, so one mask serves all layers.
    Otherwise transformers makes each layer's mask, e.g. with a sliding window, at every step.
    """

    def __init__(self, layers: int, mask: Tensor, steps: int, full_attention: bool = True) -> None:
        self.full_attention = full_attention
        super().__init__([OwnLayer(steps) for _ in range(layers)])
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


class StaticKeys(OwnKeys):
    """A cache of fixed size for the batches of one request, in which each response has its row.

    A step is computed for at least as many rows and columns as are in use, of few sizes. On a GPU
    each size is a CUDA graph, captured once; elsewhere it is computed as it is.
    """

    def __init__(self, layers: int, max_rows: int, columns: int, device: torch.device) -> None:
        """`max_rows` and `columns`: the most of any batch."""
        self.shape = (padded_rows(max_rows), -(-columns // COLUMNS) * COLUMNS)
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.ids = self.at.new_zeros(self.shape[0], 1)
        self.positions = self.ids.clone()
        KVCache.__init__(self, [StaticLayer(self.at) for _ in range(layers)])
        self.visible = torch.zeros(self.shape, dtype=torch.bool, device=device)
        self.steps: dict[tuple[int, int], Callable[[], Tensor]] = {}
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def load(self, read: OwnKeys, row_of: Tensor) -> None:
        """Begin a batch whose response n goes on from row `row_of[n]` of what was read."""
        for layer, of in zip(self.layers, read.layers, strict=True):
            layer.take(of, row_of, self.shape)
        self.visible.zero_()
        self.visible[: len(row_of), : read.visible.shape[1]] = read.visible[row_of]

    def select(self, rows: Tensor, max_rows: int) -> None:
        for layer in self.layers:
            layer.take(layer, rows)
        self.visible[: len(rows)] = self.visible[rows]

    def decode(self, model: Any, tokens: Tensor, position: Tensor) -> Tensor:
        filled = self.layers[0].filled
        size = padded_rows(len(tokens)), (filled // COLUMNS + 1) * COLUMNS
        self.ids[: len(tokens), 0], self.positions[: len(tokens)] = tokens, position
        self.at.fill_(filled)
        if size not in self.steps:
            self.steps[size] = self._captured(partial(self._step, model, *size))
        logits = self.steps[size]()
        for layer in self.layers:
            layer.filled += 1
        return logits[: len(tokens)]

    def _step(self, model: Any, rows: int, columns: int) -> Tensor:
        """Compute a step from what is at the fixed addresses; twice it gives the same."""
        for layer in self.layers:
            layer.columns = columns
        self.visible[:rows].index_fill_(1, self.at, True)
        given = {"input_ids": self.ids[:rows], "position_ids": self.positions[:rows]}
        mask = self.visible[:rows, None, None, :columns]
        inputs = {"attention_mask": mask, "past_key_values": self.cache}
        return model(**given, **inputs, use_cache=True).logits[:, -1]

    def _captured(self, step: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Return the step as a replayed CUDA graph; on other devices as it is."""
        if self.at.device.type != "cuda":
            return step
        with torch.cuda.device(self.at.device):
            beside, now = torch.cuda.Stream(), torch.cuda.current_stream()
            beside.wait_stream(now)
            with torch.cuda.stream(beside):  # kernels and workspaces are made before the capture
                step()
            now.wait_stream(beside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                logits = step()

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay


def padded_rows(count: int) -> int:
    """Return the rows of a fixed step for `count` responses: the least ROWS · 2^n."""
    return ROWS << max(0, (count - 1) // ROWS).bit_length()


class SharedKeys(KVCache):
    """A cache that stores a prompt's keys and values once for all its rows.

    Queries are laid out on a grid (prompts, the most rows of a prompt) to be multiplied with their
    prompt's keys; `cell` (rows,) is each row's place on it.
    """

    def __init__(self, layers: int, mask: Tensor, steps: int) -> None:
        super().__init__([SharedLayer(steps) for _ in range(layers)])
        self.bias = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)

    def begin(self, max_rows: int) -> None:
        for layer in self.layers:
            layer.begin(max_rows)
        self._lay_out(torch.arange(len(self.bias)))

    def select(self, rows: Tensor, max_rows: int) -> None:
        used, prompt_of = self.prompt_of[rows].unique(return_inverse=True)
        prompts = used if len(used) < len(self.bias) else None
        for layer in self.layers:
            layer.select(rows, max_rows, prompts)
        if prompts is not None:
            self.bias = self.bias[prompts]
        self._lay_out(prompt_of)

    def states(self, rows: Tensor) -> Tensor:
        prompts = self.prompt_of[rows]
        return torch.stack([part for layer in self.layers for part in layer.states(rows, prompts)])

    def branch(self, parents: Tensor) -> None:
        for layer in self.layers:
            layer.branch(len(self.prompt_of), parents)
        self._lay_out(torch.cat([self.prompt_of, self.prompt_of[parents]]))

    def _lay_out(self, prompt_of: Tensor) -> None:
        """Place the rows on the grid; `prompt_of` (rows,) is each row's prompt."""
        counts = prompt_of.bincount(minlength=len(self.bias))
        self.prompt_of, self.most = prompt_of, int(counts.max()) if len(prompt_of) else 0
        by_prompt, number = prompt_of.argsort(stable=True), torch.arange(len(prompt_of))
        first = (counts.cumsum(0) - counts)[prompt_of]
        self.cell = prompt_of * self.most - first
        self.cell[by_prompt] += number
        self.full = torch.equal(self.cell, number) and len(number) == len(self.bias) * self.most

    def model_inputs(self) -> dict[str, Any]:
        # transformers passes a four-dimensional mask through; our attention does not read it.
        mask = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        return {"past_key_values": self.cache, "attention_mask": mask, "shared": self}

    def attention(self, model: PreTrainedModel) -> AbstractContextManager[None]:
        """Our attention, put into a model that the learner may share."""
        return AttentionOverride(model.config, SHARED)

    def to_grid(self, rows: Tensor) -> Tensor:
        """(rows, heads, n, d) → (prompts, heads, most × n, d), 0 where a prompt has fewer rows."""
        _, heads, n, d = rows.shape
        if not self.full:
            blank = rows.new_zeros(len(self.bias) * self.most, heads, n, d)
            rows = blank.index_copy_(0, self.cell, rows)
        grid = rows.view(-1, self.most, heads, n, d).transpose(1, 2)
        return grid.reshape(-1, heads, self.most * n, d)

    def from_grid(self, grid: Tensor, n: int) -> Tensor:
        """(prompts, heads, most × n, d) → (rows, heads, n, d): the inverse of `to_grid`."""
        prompts, heads, _, d = grid.shape
        cells = grid.view(prompts, heads, self.most, n, d).transpose(1, 2)
        cells = cells.reshape(-1, heads, n, d)
        return cells if self.full else cells.index_select(0, self.cell)


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *,
    shared: SharedKeys,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Attention of one new token of each row, query (rows, heads, 1, dim) → (rows, 1, heads, dim).

    One softmax over the prompt's keys and the row's own; only the products are computed apart.
    `module` is the attention of one layer.
    """
    layer = shared.layers[module.layer_idx]
    keys, values = layer.generated(len(query))
    heads = layer.prompt_keys.shape[1]  # of keys: several query heads may share one
    q = query.float() * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    q = q.view(len(query), heads, -1, q.shape[-1])
    n = q.shape[2]
    # Scores over generated tokens are put on the grid: they are less to move than prompts.
    to_prompt = shared.to_grid(q) @ layer.prompt_keys.transpose(2, 3) + shared.bias[:, None, None]
    scores = torch.cat([to_prompt, shared.to_grid(_scores(q, keys))], -1)
    prompt_weights, own_weights = scores.softmax(-1).split([to_prompt.shape[-1], len(keys)], -1)
    mixed = shared.from_grid(prompt_weights @ layer.prompt_values, n)
    mixed = mixed + _mixed(shared.from_grid(own_weights, n), values)
    return mixed.reshape(len(query), 1, -1, mixed.shape[-1]).to(query.dtype), None


def _scores(query: Tensor, keys: Tensor) -> Tensor:
    """query (rows, heads, n, dim), keys (steps, rows, heads, dim) → (rows, heads, n, steps)."""
    parts = keys.unsqueeze(3).split(max(1, PRODUCTS // query.numel()))
    return torch.cat([(part * query).sum(-1) for part in parts]).permute(1, 2, 3, 0)


def _mixed(weights: Tensor, values: Tensor) -> Tensor:
    """weights (rows, heads, n, steps), values (steps, rows, heads, dim) → (rows, heads, n, dim)."""
    weights = weights.permute(3, 0, 1, 2).unsqueeze(-1)
    size = max(1, PRODUCTS // (values[0].numel() * weights.shape[3]))
    chunks = zip(weights.split(size), values.unsqueeze(3).split(size), strict=True)
    return sum(((weight * value).sum(0) for weight, value in chunks), torch.zeros(()))


AttentionInterface.register(SHARED, attend)


def make_kv_cache(
    model: PreTrainedModel, mask: Tensor, steps: int, may_share: bool = True
) -> OwnKeys | SharedKeys:
    """Return a cache with shared prompts if the model takes another attention and is on a CPU.

    `mask` (prompts, width) bool: the prompts' tokens, padded on the left. `steps` are to follow.
    """
    layers = model.config.get_text_config().num_hidden_layers
    full_attention = can_override_attention(model)
    if may_share and mask.device.type == "cpu" and full_attention:
        return SharedKeys(layers, mask, steps)
    return OwnKeys(layers, mask, steps, full_attention)


# Between the answers of a conversation


class KeptKeys:
    """Keys and values of prompts and the responses to them, all but the last token of each."""

    def __init__(self) -> None:
        self._kept: dict[TokenIds, dict[TokenIds, Tensor]] = {}  # prompt → response → states

    def add(self, prompt: Sequence[int], response: Sequence[int], states: Tensor) -> None:
        """Keep `states`, (2 × layers, heads, tokens, dim)."""
        self._kept.setdefault(tuple(prompt), {})[tuple(response)] = states

    def take(
        self, prompts: Sequence[Sequence[int]], begun: Sequence[Sequence[TokenIds]]
    ) -> dict[tuple[int, TokenIds], Tensor]:
        """Return what is kept of each `begun[i]` after `prompts[i]`; all else of them is dropped.

        The keys of the result are (i, begun); what is not in it has to be read.
        """
        found = {}
        for index, (prompt, group) in enumerate(zip(prompts, begun, strict=True)):
            kept = self._kept.get(tuple(prompt), {})
            lengths = sorted({len(response) for response in kept}, reverse=True)
            for tokens in group:
                begin = next((tokens[:n] for n in lengths if tokens[:n] in kept), None)
                if begin is not None:
                    found[index, tokens] = kept[begin]
        for prompt in prompts:
            self._kept.pop(tuple(prompt), None)
        return found

    def clear(self) -> None:
        """Drop all."""
        self._kept.clear()


def in_columns(lengths: Sequence[int], kept: Sequence[Tensor | None]) -> Tensor | None:
    """Lay out what is kept of contexts that are padded on the left, up to the first column to read.

    `lengths` of the contexts in tokens. Returns (2 × layers, rows, heads, columns, dim), without
    the last columns, in which some context has a token that is not kept; None if all are to read.
    """
    pairs = list(zip(lengths, kept, strict=True))
    rest = max(length - (0 if each is None else each.shape[2]) for length, each in pairs)
    columns = max(lengths) - rest
    some = next((each for each in kept if each is not None), None)
    if some is None or columns <= 0:
        return None
    states = some.new_zeros(len(some), len(pairs), some.shape[1], columns, some.shape[3])
    for row, (length, each) in enumerate(pairs):
        if each is not None and length > rest:
            states[:, row, :, columns - (length - rest) :] = each[:, :, : length - rest]
    return states
