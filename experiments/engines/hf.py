"""A batched sampling loop over any transformers causal model.

Four things make it faster than `generate`. A prompt is read once for all its responses, which on a
CPU also share its keys and values (`kv_cache.py`). Responses to a prompt that are equal so far are
one row of the model's batch, until they draw different tokens. The cache is allocated once, and
attention sees only its filled part. Finished responses leave the batch.

Every response draws its uniforms from a stream of its own, so it does not depend on its neighbours
beyond float rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from experiments.engines.base import Completion, Engine, FinishedResponse, Sampling
from experiments.engines.kv_cache import KVCache, make_kv_cache
from experiments.policy.policy import Policy, WeightSource

CANDIDATES = (16, 256)  # numbers of tokens to try for the nucleus before all
COMPACT_BELOW = 0.75  # finished responses are dropped once at most this share is unfinished


class Request(NamedTuple):
    """One requested response."""

    prompt: int
    number: int  # its index among the prompt's responses
    seed: int


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


def draw(
    logits: Tensor, row_of: Tensor, uniforms: Tensor, sampling: Sampling
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw a token of each response → tokens, their log-probs, the entropies, (responses,) each.

    logits (rows, vocabulary), row_of (responses,) each one's row, uniforms (responses,).

    The cumulative distribution is inverted in float32. The log-prob is that of the distribution
    drawn from: after temperature, and renormalised after the top-p cut. At temperature 0 it is the
    most probable token, with its log-prob at temperature 1. The entropy is the policy's own, at
    temperature 1 and of all tokens: settings of an evaluation do not show in it.
    """
    logits = logits.float()
    logps = logits.log_softmax(-1)
    probs = logps.exp()
    entropy = -(probs * logps.masked_fill(probs == 0, 0.0)).sum(-1)
    order = None
    scaled = sampling.temperature not in (0, 1)
    if scaled:
        logps = (logits / sampling.temperature).log_softmax(-1)
    if sampling.top_p < 1 and sampling.temperature > 0:
        logps, order = nucleus(logps, sampling.top_p)
    if sampling.temperature > 0:
        probs = probs if order is None and not scaled else logps.exp()
        cumulative = probs.cumsum(-1).index_select(0, row_of)
        targets = uniforms.unsqueeze(-1) * cumulative[:, -1:]
        choice = torch.searchsorted(cumulative, targets, right=True).squeeze(-1)
        choice = choice.clamp(max=logps.shape[-1] - 1)
    else:
        choice = logps.argmax(-1)[row_of]
    token = choice if order is None else order[row_of, choice]
    return token, logps[row_of, choice], entropy[row_of]


def nucleus(logps: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Return the log-probs of the most probable tokens that make up `top_p`, and those tokens.

    logps (rows, vocabulary) → (rows, n) each: renormalised, greatest first, −inf past the cut. Few
    tokens usually make up top_p, so few are sorted first, and more only if a row needs them. Of
    equal log-probs the lower token is first, however many are sorted.
    """
    for size in (size for size in CANDIDATES if size < logps.shape[-1]):
        order = logps.topk(size)[1].sort(-1).values
        kept, by = logps.gather(-1, order).sort(dim=-1, descending=True, stable=True)
        # Tokens as probable as the last one may have equals that were left out.
        sure = kept.exp().masked_fill(kept <= kept[:, -1:], 0.0).sum(-1)
        if bool((sure >= top_p).all()):
            return _cut(kept, top_p), order.gather(-1, by)
    kept, order = logps.sort(dim=-1, descending=True, stable=True)
    return _cut(kept, top_p), order


def _cut(logps: Tensor, top_p: float) -> Tensor:
    """Renormalise falling log-probs over the first that make up `top_p`; −inf beyond."""
    probs = logps.exp()
    before = probs.cumsum(-1) - probs  # the first token always stays
    return logps.masked_fill(before >= top_p, -torch.inf).log_softmax(-1)


def uniforms(seeds: Sequence[int], steps: int) -> Tensor:
    """Return (len(seeds), steps) float32 in [0, 1), each row from its own generator."""
    generator = torch.Generator()
    return torch.stack([torch.rand(steps, generator=generator.manual_seed(seed)) for seed in seeds])


class HFEngine(Engine):
    """Samples from `policy`, which it shares with its owner or brings up to date at each sync."""

    name = "hf"

    def __init__(self, policy: Policy, eos: set[int], pad: int, batch_size: int) -> None:
        self.policy, self.model = policy, policy.model
        self.eos = torch.tensor(sorted(eos), device=policy.device)
        self.pad, self.batch_size = pad, batch_size

    def sync(self, weights: WeightSource) -> None:
        self._copy(weights)

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        finished: Callable[[Sequence[FinishedResponse]], None] | None = None,
    ) -> list[list[Completion]]:
        completions: dict[tuple[int, int], Completion] = {}

        def hand_out(responses: Sequence[FinishedResponse]) -> None:
            for prompt, number, completion in responses:
                completions[prompt, number] = completion
            if finished and responses:
                finished(responses)

        was_training = self.model.training
        self.model.eval()
        for batch in self._batches(prompts, seeds):
            self._generate(prompts, batch, sampling, hand_out)
        self.model.train(was_training)
        return [[completions[i, n] for n in range(len(group))] for i, group in enumerate(seeds)]

    def _batches(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[Sequence[int]]
    ) -> Iterator[list[Request]]:
        """Yield batches of at most batch_size responses, prompts of similar length together."""
        by_length = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        requests = [Request(i, n, seed) for i in by_length for n, seed in enumerate(seeds[i])]
        for start in range(0, len(requests), self.batch_size):
            yield requests[start : start + self.batch_size]

    def _generate(
        self,
        prompts: Sequence[Sequence[int]],
        batch: list[Request],
        sampling: Sampling,
        hand_out: Callable[[Sequence[FinishedResponse]], None],
    ) -> None:
        """Generate a batch; responses are handed out as they leave it."""
        steps, device = sampling.max_tokens, self.model.device
        unique = list(dict.fromkeys(request.prompt for request in batch))
        row_of = {prompt: row for row, prompt in enumerate(unique)}
        cache, logits, position = self._prefill([prompts[i] for i in unique], steps)
        cache.begin(len(batch))
        active = ActiveSequences(
            index=torch.arange(len(batch), device=device),
            uniforms=uniforms([request.seed for request in batch], steps).to(device),
            row_of=torch.tensor([row_of[request.prompt] for request in batch], device=device),
            position=position,
            cache=cache,
        )
        with cache.attention(self.model):
            self._sample(logits, active, batch, sampling, hand_out)

    def _sample(
        self,
        logits: Tensor,
        active: ActiveSequences,
        batch: list[Request],
        sampling: Sampling,
        hand_out: Callable[[Sequence[FinishedResponse]], None],
    ) -> None:
        """Draw token after token of all responses; `logits` (rows, vocabulary) are of the first."""
        steps = sampling.max_tokens
        drawn = Drawn.empty(len(batch), steps, logits.device)
        for step in range(steps):
            token, logp, entropy = draw(logits, active.row_of, active.uniforms[:, step], sampling)
            drawn.tokens[active.index, step] = token
            drawn.logps[active.index, step] = logp
            drawn.entropies[active.index, step] = entropy
            live = drawn.lengths[active.index] == 0
            ended = torch.isin(token, self.eos) & live
            drawn.lengths[active.index[ended]] = step + 1
            live &= ~ended
            index = active.index
            responses, compacted = self._compact(active, live)
            if self.on_tokens:
                self.on_tokens(responses)
            if compacted:
                hand_out(self._completions(drawn, index[~live], batch, steps))
                token, live = token[live], live[live]
            if not len(token) or step + 1 == steps:
                break
            logits = self._decode(active.branch(token, live, logits.shape[-1]), active)
        hand_out(self._completions(drawn, active.index, batch, steps))

    def _prefill(self, prompts: list[Sequence[int]], steps: int) -> tuple[KVCache, Tensor, Tensor]:
        """Read the prompts, padded on the left.

        Returns their cache, the next logits (prompts, vocabulary) and positions (prompts, 1).
        """
        device = self.model.device
        width = max(len(prompt) for prompt in prompts)
        padded = [[self.pad] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        ids = torch.tensor(padded, device=device)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        mask = torch.arange(width, device=device) >= (width - lengths).unsqueeze(-1)
        cache = make_kv_cache(self.model, mask, steps)
        output = self.model(
            input_ids=ids,
            attention_mask=mask.long(),
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
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

    def _compact(self, active: ActiveSequences, live: Tensor) -> tuple[int, bool]:
        """Drop finished responses if they are enough to pay for moving the cache.

        Returns the number of unfinished responses, and whether others were dropped.
        """
        used = live.new_zeros(len(active.position)).index_fill_(0, active.row_of[live], True)
        responses, rows = torch.stack([live.sum(), used.sum()]).tolist()
        if responses > COMPACT_BELOW * len(live) and rows > COMPACT_BELOW * len(used):
            return responses, False
        active.select(live, used)
        return responses, True

    def _completions(
        self, drawn: Drawn, index: Tensor, batch: list[Request], steps: int
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
