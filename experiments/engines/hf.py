"""A batched sampling loop over any transformers causal model.

Five things make it faster than `generate`. A prompt is read once for all its responses, which on a
CPU also share its keys and values (`shared_keys.py`). Responses to a prompt that are equal so far
are one row of the model's batch, until they draw different tokens. The cache is allocated once, and
attention sees only its filled part. Finished responses leave the batch. A conversation's next
answer goes on from the keys and values of the ones before it (`kept_keys.py`).

Every response draws its uniforms from a stream of its own, so it does not depend on its neighbours
beyond float rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from experiments.engines.base import Engine, FinishedResponse, OnFinished, Request, Sampling
from experiments.engines.kept_keys import KeptKeys, TokenIds, in_columns
from experiments.engines.kv_cache import KVCache
from experiments.engines.sampling import draw, uniforms
from experiments.engines.shared_keys import make_kv_cache
from experiments.policy.policy import Policy, WeightSource
from experiments.sample import Completion

COMPACT_BELOW = 0.75  # finished responses are dropped once at most this share is unfinished


class Requested(NamedTuple):
    """One requested response."""

    prompt: int
    number: int  # its index among the prompt's responses
    seed: int
    begun: TokenIds  # the tokens that it begins with


@dataclass
class Call:
    """One call of `generate`: what it was given, and the responses so far."""

    prompts: Sequence[Sequence[int]]
    sampling: Sampling
    finished: Callable[[Sequence[FinishedResponse]], None] | None
    held: dict[tuple[int, TokenIds], Tensor]  # keys and values of (prompt, begun), until read
    keep: bool  # whether keys and values of the responses are kept
    completions: dict[tuple[int, int], Completion] = field(default_factory=dict)

    def hand_out(self, responses: Sequence[FinishedResponse]) -> None:
        """Pass on finished responses."""
        for prompt, number, completion in responses:
            self.completions[prompt, number] = completion
        if self.finished and responses:
            self.finished(responses)


@dataclass
class ActiveSequences:
    """The unfinished responses, and the model's rows that hold their tokens.

    Responses to a prompt that are equal so far share a row, and every row has a response.
    """

    index: Tensor  # (responses,) each one's request in the batch
    uniforms: Tensor  # (responses, max_tokens) in [0, 1)
    row_of: Tensor  # (responses,) each one's row
    position: Tensor  # (rows, 1) position id of the token to feed next
    cache: KVCache  # of the rows
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


@dataclass
class Drawn:
    """The drawn tokens, (requests, steps) each; length 0 is an unfinished response."""

    tokens: Tensor
    logps: Tensor
    entropies: Tensor
    lengths: Tensor = field(init=False)

    @classmethod
    def empty(cls, requests: int, steps: int, device: torch.device) -> Drawn:
        floats = [torch.zeros(requests, steps, device=device) for _ in range(2)]
        drawn = cls(torch.zeros(requests, steps, dtype=torch.long, device=device), *floats)
        drawn.lengths = torch.zeros(requests, dtype=torch.long, device=device)
        return drawn


def _blank(seeds: Sequence[Sequence[int]]) -> list[list[TokenIds]]:
    return [[() for _ in group] for group in seeds]


class HFEngine(Engine):
    """Samples from `policy`, which it shares with its owner or brings up to date at each sync."""

    name = "hf"

    def __init__(self, policy: Policy, eos: set[int], pad: int, batch_size: int) -> None:
        self.policy, self.model = policy, policy.model
        self.eos = torch.tensor(sorted(eos), device=policy.device)
        self.pad, self.batch_size = pad, batch_size
        self._kept = KeptKeys()

    def sync(self, weights: WeightSource) -> None:
        self._copy(weights)

    def release_memory(self) -> None:
        self._kept.clear()

    @torch.inference_mode()
    def generate(self, request: Request, finished: OnFinished = None) -> list[list[Completion]]:
        seeds = request.seeds
        begins = [[tuple(tokens) for tokens in group] for group in request.begun or _blank(seeds)]
        held = self._kept.take(request.prompts, begins) if request.begun is not None else {}
        call = Call(request.prompts, request.sampling, finished, held, request.keep)
        was_training = self.model.training
        self.model.eval()
        for batch in self._batches(request.prompts, seeds, begins):
            self._generate(call, batch)
        self.model.train(was_training)
        return [[call.completions[i, n] for n in range(len(g))] for i, g in enumerate(seeds)]

    def _batches(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        begins: Sequence[Sequence[TokenIds]],
    ) -> Iterator[list[Requested]]:
        """Yield batches of at most batch_size responses, contexts of similar length together."""
        requests = [
            Requested(i, n, seed, begins[i][n])
            for i, group in enumerate(seeds)
            for n, seed in enumerate(group)
        ]
        requests.sort(key=lambda one: len(prompts[one.prompt]) + len(one.begun))
        for start in range(0, len(requests), self.batch_size):
            yield requests[start : start + self.batch_size]

    def _generate(self, call: Call, batch: list[Requested]) -> None:
        """Generate a batch; responses are handed out as they leave it."""
        steps, device = call.sampling.max_tokens, self.model.device
        contexts = list(dict.fromkeys((request.prompt, request.begun) for request in batch))
        row_of = {context: row for row, context in enumerate(contexts)}
        tokens = [[*call.prompts[prompt], *begun] for prompt, begun in contexts]
        cache, logits, position = self._prefill(
            tokens, [call.held.pop(context, None) for context in contexts], steps
        )
        cache.begin(len(batch))
        rows = [row_of[request.prompt, request.begun] for request in batch]
        active = ActiveSequences(
            index=torch.arange(len(batch), device=device),
            uniforms=uniforms([request.seed for request in batch], steps).to(device),
            row_of=torch.tensor(rows, device=device),
            position=position,
            cache=cache,
            width=max(map(len, tokens)),
        )
        with cache.attention(self.model):
            self._sample(logits, active, batch, call)

    def _sample(
        self, logits: Tensor, active: ActiveSequences, batch: list[Requested], call: Call
    ) -> None:
        """Draw token after token of all responses; `logits` (rows, vocabulary) are of the first."""
        steps = call.sampling.max_tokens
        drawn = Drawn.empty(len(batch), steps, logits.device)
        for step in range(steps):
            drawn_by = active.uniforms[:, step]
            token, logp, entropy = draw(logits, active.row_of, drawn_by, call.sampling)
            drawn.tokens[active.index, step] = token
            drawn.logps[active.index, step] = logp
            drawn.entropies[active.index, step] = entropy
            live = drawn.lengths[active.index] == 0
            ended = torch.isin(token, self.eos) & live
            drawn.lengths[active.index[ended]] = step + 1
            live &= ~ended
            responses, used = self._in_use(active, live)
            if self.on_tokens:
                self.on_tokens(responses)
            if used is not None:
                self._hand_out(drawn, active, ~live, batch, call)
                active.select(live, used)
                token, live = token[live], live[live]
            if not len(token) or step + 1 == steps:
                break
            logits = self._decode(active.branch(token, live, logits.shape[-1]), active)
        self._hand_out(drawn, active, torch.ones_like(live), batch, call)

    def _prefill(
        self, contexts: Sequence[Sequence[int]], held: Sequence[Tensor | None], steps: int
    ) -> tuple[KVCache, Tensor, Tensor]:
        """Read the contexts, padded on the left, but for the columns that are held of all of them.

        Returns their cache, the next logits (contexts, vocabulary) and positions (contexts, 1).
        """
        device = self.model.device
        width = max(len(context) for context in contexts)
        padded = [[self.pad] * (width - len(context)) + list(context) for context in contexts]
        ids = torch.tensor(padded, device=device)
        lengths = torch.tensor([len(context) for context in contexts], device=device)
        mask = torch.arange(width, device=device) >= (width - lengths).unsqueeze(-1)
        cache = make_kv_cache(self.model, mask, steps)
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

    def _decode(self, token: Tensor, active: ActiveSequences) -> Tensor:
        """Feed one token of each row → the next logits, (rows, vocabulary)."""
        output = self.model(
            input_ids=token.unsqueeze(-1),
            position_ids=active.position,
            use_cache=True,
            **active.cache.model_inputs(),
        )
        active.position = active.position + 1
        return output.logits[:, -1]

    def _in_use(self, active: ActiveSequences, live: Tensor) -> tuple[int, Tensor | None]:
        """Return the number of unfinished responses, and their rows (rows,) as bool.

        None for the rows if too few have finished to pay for moving the cache.
        """
        used = live.new_zeros(len(active.position)).index_fill_(0, active.row_of[live], True)
        responses, rows = torch.stack([live.sum(), used.sum()]).tolist()
        if responses > COMPACT_BELOW * len(live) and rows > COMPACT_BELOW * len(used):
            return responses, None
        return responses, used

    def _hand_out(
        self,
        drawn: Drawn,
        active: ActiveSequences,
        leaving: Tensor,
        batch: list[Requested],
        call: Call,
    ) -> None:
        """Hand out responses that leave the batch, `leaving` (responses,) as bool."""
        index = active.index[leaving]
        responses = self._completions(drawn, index, batch, call.sampling.max_tokens)
        if call.keep and responses:
            states = active.cache.states(active.row_of[leaving])
            for at, (place, (prompt, _, completion)) in enumerate(
                zip(index.tolist(), responses, strict=True)
            ):
                read, begun = call.prompts[prompt], batch[place].begun
                start = active.width - len(read) - len(begun)
                end = active.width + len(completion.tokens) - 1  # the last one was never fed
                own = states[:, at, :, start:end]
                self._kept.add(read, (*begun, *completion.tokens), own)
        call.hand_out(responses)

    def _completions(
        self, drawn: Drawn, index: Tensor, batch: list[Requested], steps: int
    ) -> list[FinishedResponse]:
        """Return the responses at `index` of the batch; they have ended, or no step is left."""
        columns = (drawn.lengths, drawn.tokens, drawn.logps, drawn.entropies)
        rows = zip(index.tolist(), *(column[index].tolist() for column in columns), strict=True)
        responses = []
        for at, length, tokens, logps, entropies in rows:
            end = length or steps
            completion = Completion(
                tokens=tuple(tokens[:end]),
                logps=tuple(logps[:end]),
                entropy=sum(entropies[:end]) / end,
                truncated=length == 0,
                version=self.version,
            )
            responses.append((batch[at].prompt, batch[at].number, completion))
        return responses
