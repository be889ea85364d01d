"""A batched sampling loop over any transformers causal model.

Five things make it faster than `generate`. A prompt is read once for all its responses, which on a
CPU also share its keys and values (`kv_cache.py`). Responses to a prompt that are equal so far are
one row of the model's batch, until they draw different tokens. The cache is allocated once, and
attention sees only its filled part. Finished responses leave the batch. A conversation's next
answer goes on from the keys and values of the ones before it (`KeptKeys`), and so do continuations
of one response from several of its tokens.

Every response draws its uniforms from a stream of its own, so it does not depend on its neighbours
beyond float rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from experiments.engines.base import Engine, FinishedResponse, OnFinished, Request, draw, uniforms
from experiments.engines.kv_cache import (
    KeptKeys,
    OwnKeys,
    SharedKeys,
    StaticKeys,
    TokenIds,
    in_columns,
    make_kv_cache,
)
from experiments.policy.policy import Policy
from experiments.sample import Completion

COMPACT_BELOW = 0.75  # finished responses are dropped once at most this share is unfinished


class Slot(NamedTuple):
    """One requested response."""

    prompt: int
    number: int  # its index among the prompt's responses
    seed: int
    begun: TokenIds  # the tokens that it begins with
    limit: int  # the most tokens to draw


@dataclass
class ActiveSequences:
    """The unfinished responses, and the model's rows that hold their tokens.

    Responses to a prompt that are equal so far share a row, and every row has a response.
    """

    slots: list[Slot]  # of the batch, finished ones included
    index: Tensor  # (responses,) each one's slot
    uniforms: Tensor  # (responses, max_tokens) in [0, 1)
    row_of: Tensor  # (responses,) each one's row
    position: Tensor  # (rows, 1) position id of the token to feed next
    cache: OwnKeys | SharedKeys  # of the rows
    width: int  # columns of the contexts in the cache, padding included

    def select(self, keep: Tensor, rows: Tensor) -> None:
        """Keep responses and rows: `keep` (responses,) and `rows` (rows,) are bool."""
        self.index, self.uniforms = self.index[keep], self.uniforms[keep]
        self.row_of = (rows.cumsum(0) - 1)[self.row_of[keep]]
        self.position = self.position[rows]
        self.cache.select(rows.nonzero().squeeze(-1), len(self.index))

    def branch(self, token: Tensor, live: Tensor, vocabulary: int) -> Tensor:
        """Branch rows whose responses drew different tokens → the next token of each row.

        `token` (responses,) is each one's draw; only those of `live` responses count. The first of
        a row's tokens stays in that row.
        """
        rows = len(self.position)
        if rows == len(self.row_of):  # each response has a row of its own
            return torch.empty_like(token).scatter_(0, self.row_of, token)
        pairs, which = (self.row_of[live] * vocabulary + token[live]).unique(return_inverse=True)
        parent, next_token = pairs // vocabulary, pairs % vocabulary
        repeated = parent[1:] == parent[:-1]
        is_branch = torch.cat([repeated.new_zeros(1), repeated])
        place = torch.where(is_branch, rows - 1 + is_branch.cumsum(0), parent)
        self.row_of[live] = place[which]
        parents = parent[is_branch]
        if len(parents):
            self.cache.branch(parents)
            self.position = torch.cat([self.position, self.position[parents]])
        # A row whose responses have all ended is fed token 0; its output is not used.
        return token.new_zeros(len(self.position)).scatter_(0, place, next_token)

    def in_use(self, live: Tensor) -> tuple[int, Tensor | None]:
        """Return the number of unfinished responses, and their rows (rows,) as bool.

        None for the rows if too few have finished to pay for moving the cache.
        """
        used = live.new_zeros(len(self.position)).index_fill_(0, self.row_of[live], True)
        responses, rows = torch.stack([live.sum(), used.sum()]).tolist()
        if responses > COMPACT_BELOW * len(live) and rows > COMPACT_BELOW * len(used):
            return responses, None
        return responses, used


class HFEngine(Engine):
    """Samples from `policy`, which it shares with its owner or brings up to date at each sync."""

    name = "hf"

    def __init__(
        self, policy: Policy, eos: set[int], pad: int, batch_size: int, static_cache: bool = False
    ) -> None:
        self.policy, self.model = policy, policy.model
        self.eos = torch.tensor(sorted(eos), device=policy.device)
        self.pad, self.batch_size, self.static_cache = pad, batch_size, static_cache
        self._kept = KeptKeys()

    def release_memory(self) -> None:
        self._kept.clear()

    @torch.inference_mode()
    def generate(self, request: Request, finished: OnFinished = None) -> list[list[Completion]]:
        begun = [[tuple(tokens) for tokens in group] for group in request.begun or ()]
        was_training = self.model.training
        self.model.eval()
        if request.continues:
            held = self._read_once(request.prompts, begun)
        else:
            held = self._kept.take(request.prompts, begun) if begun else {}
        slots = [
            Slot(i, n, seed, tokens, request.tokens_left(tokens))
            for i, group in enumerate(request.seeds)
            for n, seed in enumerate(group)
            for tokens in [begun[i][n] if begun else ()]
        ]
        slots.sort(key=lambda slot: len(request.prompts[slot.prompt]) + len(slot.begun))
        static = self._static_keys(request, slots) if self.static_cache and slots else None
        completions: dict[tuple[int, int], Completion] = {}
        for start in range(0, len(slots), self.batch_size):  # contexts of similar length together
            batch = slots[start : start + self.batch_size]
            for responses in self._batch(request, batch, held, static):
                completions |= {(prompt, number): one for prompt, number, one in responses}
                if finished and responses:
                    finished(responses)
        self.model.train(was_training)
        return [[completions[i, n] for n in range(len(g))] for i, g in enumerate(request.seeds)]

    def _static_keys(self, request: Request, slots: list[Slot]) -> StaticKeys:
        """Return a cache of fixed size for all batches of the slots, the longest context last."""
        rows, last = min(len(slots), self.batch_size), slots[-1]
        columns = len(request.prompts[last.prompt]) + len(last.begun) + request.sampling.max_tokens
        layers = self.model.config.get_text_config().num_hidden_layers
        return StaticKeys(layers, rows, columns, self.model.device)

    def _read_once(
        self, prompts: Sequence[Sequence[int]], begun: Sequence[Sequence[TokenIds]]
    ) -> dict[tuple[int, TokenIds], Tensor]:
        """Read each longest `begun` after its prompt once → keys and values of all (prompt, begun).

        (2 × layers, heads, tokens, dim) each, without the last token. That of a beginning of
        another is a view of the other's.
        """
        longest_of: dict[tuple[int, TokenIds], tuple[int, TokenIds]] = {}
        for index, group in enumerate(begun):
            longest: TokenIds = ()
            for tokens in sorted(set(group), reverse=True):  # what goes on from it comes before it
                if longest[: len(tokens)] != tokens:
                    longest = tokens
                longest_of[index, tokens] = (index, longest)
        texts = sorted(set(longest_of.values()), key=lambda at: len(prompts[at[0]]) + len(at[1]))
        read: dict[tuple[int, TokenIds], Tensor] = {}
        for start in range(0, len(texts), self.batch_size):
            part = texts[start : start + self.batch_size]
            contexts = [[*prompts[index], *own] for index, own in part]
            cache, _, _ = self._prefill(contexts, [None] * len(part), 0)
            cache.begin(len(part))
            states = cache.states(torch.arange(len(part), device=self.model.device))
            for row, (at, context) in enumerate(zip(part, contexts, strict=True)):
                read[at] = states[:, row, :, states.shape[3] - len(context) :]
        return {
            (index, tokens): read[at][:, :, : len(prompts[index]) + len(tokens) - 1]
            for (index, tokens), at in longest_of.items()
        }

    def _batch(
        self,
        request: Request,
        batch: list[Slot],
        held: dict[tuple[int, TokenIds], Tensor],
        static: StaticKeys | None,
    ) -> Iterator[list[FinishedResponse]]:
        """Generate a batch; yield responses as they leave it.

        `held`: keys and values of (prompt, begun), which are taken out as they are read, unless
        they are views of others'.
        """
        total, device = request.sampling.max_tokens, self.model.device
        limits = torch.tensor([slot.limit for slot in batch], device=device)
        steps = max(slot.limit for slot in batch)
        contexts = list(dict.fromkeys((slot.prompt, slot.begun) for slot in batch))
        row_of = {context: row for row, context in enumerate(contexts)}
        tokens = [[*request.prompts[prompt], *begun] for prompt, begun in contexts]
        take = held.get if request.continues else held.pop
        states = [take(context, None) for context in contexts]
        cache, logits, position = self._prefill(tokens, states, 0 if static else steps)
        rows = torch.tensor([row_of[slot.prompt, slot.begun] for slot in batch], device=device)
        if static is None:
            cache.begin(len(batch))
        else:
            assert isinstance(cache, OwnKeys)
            static.load(cache, rows)
            cache, logits, position = static, logits[rows], position[rows]
            rows = torch.arange(len(batch), device=device)
        first = (total - limits).unsqueeze(-1)  # numbers of the tokens that it begins with
        numbers = (first + torch.arange(steps, device=device)).clamp(max=total - 1)
        active = ActiveSequences(
            slots=batch,
            index=torch.arange(len(batch), device=device),
            uniforms=uniforms([slot.seed for slot in batch], total).to(device).gather(1, numbers),
            row_of=rows,
            position=position,
            cache=cache,
            width=max(map(len, tokens)),
        )
        blank = torch.zeros(len(batch), steps, device=device)
        # Tokens, log-probs and entropies, (slots, steps) each; length 0 is an unfinished response.
        lengths = torch.zeros(len(batch), dtype=torch.long, device=device)
        columns = (blank.long(), blank, blank.clone())
        with cache.attention(self.model):
            for step in range(steps):
                by = active.uniforms[:, step]
                drawn = draw(logits, active.row_of, by, request.sampling)
                for column, values in zip(columns, drawn, strict=True):
                    column[active.index, step] = values
                left, token = limits[active.index] - step, drawn[0]
                live = (lengths[active.index] == 0) & (left > 0)
                ended = torch.isin(token, self.eos) & live
                lengths[active.index[ended]] = step + 1
                live &= ~ended & (left > 1)
                responses, used = active.in_use(live)
                if self.on_tokens:
                    self.on_tokens(responses)
                if used is not None:
                    yield self._leaving(request, active, (lengths, *columns), ~live)
                    active.select(live, used)
                    token, live = token[live], live[live]
                if not len(token) or step + 1 == steps:
                    break
                fed = active.branch(token, live, logits.shape[-1])
                logits = cache.decode(self.model, fed, active.position)
                active.position = active.position + 1
            rest = torch.ones_like(live)
            yield self._leaving(request, active, (lengths, *columns), rest)

    def _prefill(
        self, contexts: Sequence[Sequence[int]], held: Sequence[Tensor | None], steps: int
    ) -> tuple[OwnKeys | SharedKeys, Tensor, Tensor]:
        """Read the contexts, padded on the left, but for the columns that are held of all of them.

        Returns their cache, the next logits (contexts, vocabulary) and positions (contexts, 1).
        """
        device = self.model.device
        width = max(len(context) for context in contexts)
        padded = [[self.pad] * (width - len(context)) + list(context) for context in contexts]
        ids = torch.tensor(padded, device=device)
        lengths = torch.tensor([len(context) for context in contexts], device=device)
        mask = torch.arange(width, device=device) >= (width - lengths).unsqueeze(-1)
        cache = make_kv_cache(self.model, mask, steps, not self.static_cache)
        states, start = in_columns([len(context) for context in contexts], held), 0
        if states is not None:
            cache.resume(states)
            start = states.shape[3]
        output = self.model(
            input_ids=ids[:, start:],
            attention_mask=mask.long(),
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0)[:, start:],
            past_key_values=cache.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return cache, output.logits[:, -1], lengths[:, None]

    def _leaving(
        self, request: Request, active: ActiveSequences, drawn: Sequence[Tensor], leaving: Tensor
    ) -> list[FinishedResponse]:
        """Return the responses that leave the batch, `leaving` (responses,) as bool.

        `drawn`: lengths (slots,), and tokens, log-probs and entropies (slots, steps).
        They have ended, or no step is left. Their keys and values are kept if `request.keep`.
        """
        index = active.index[leaving]
        keeps = request.keep and len(index) > 0
        states = active.cache.states(active.row_of[leaving]) if keeps else None
        responses = []
        rows = zip(index.tolist(), *(column[index].tolist() for column in drawn), strict=True)
        for at, (place, length, tokens, logps, entropies) in enumerate(rows):
            slot = active.slots[place]
            end = length or slot.limit
            completion = Completion(
                tokens=tuple(tokens[:end]),
                logps=tuple(logps[:end]),
                entropy=sum(entropies[:end]) / end,
                truncated=length == 0,
                version=self.version,
            )
            responses.append((slot.prompt, slot.number, completion))
            if states is not None:
                prompt = request.prompts[slot.prompt]
                start = active.width - len(prompt) - len(slot.begun)
                own = states[:, at, :, start : active.width + end - 1]  # the last was never fed
                self._kept.add(prompt, (*slot.begun, *completion.tokens), own)
        return responses
