"""A batched sampling loop over any transformers causal model.

Four things make it faster than `generate`: a prompt is read once for all its responses, which on a
processor also share its keys and values (`caches.py`); responses to a prompt that are equal so far
are one row of the model's batch, until they draw different tokens; the cache is allocated once and
attention sees only its filled part; and what has ended leaves the batch.
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
from experiments.engines.kv_cache import OwnKeys, SharedKeys, keys_for
from experiments.policy.policy import Policy, WeightSource

CANDIDATES = (16, 256)  # tokens that are looked at for the nucleus first
COMPACT_BELOW = 0.75  # what has ended is dropped once this share or less is still being written


class Request(NamedTuple):
    """One response that is asked for."""

    prompt: int
    number: int  # of the prompt's responses
    seed: int


@dataclass
class Rows:
    """The responses that are being written, and the rows that hold what they have written: those
    of a prompt that are equal so far have one row, and every row has a response."""

    index: Tensor  # (responses,) which request of the batch each is
    uniforms: Tensor  # (responses, max_tokens) in [0, 1)
    of: Tensor  # (responses,) the row of each
    position: Tensor  # (rows, 1) position id of the token to feed next
    held: OwnKeys | SharedKeys  # what the rows have read

    def select(self, keep: Tensor, rows: Tensor) -> None:
        """Keep the responses and the rows at which these, of one bool each, are true."""
        self.index, self.uniforms = self.index[keep], self.uniforms[keep]
        self.of = (rows.cumsum(0) - 1)[self.of[keep]]
        self.position = self.position[rows]
        self.held.select(rows.nonzero().squeeze(-1), len(self.index))

    def branch(self, token: Tensor, live: Tensor, vocabulary: int) -> Tensor:
        """Part what has drawn different tokens, (responses,) → the token that each row reads.

        Only live responses count. The first of a row's tokens stays there.
        """
        rows = len(self.position)
        if rows == len(self.of):  # each has one of its own
            return torch.empty_like(token).scatter_(0, self.of, token)
        pairs, which = (self.of[live] * vocabulary + token[live]).unique(return_inverse=True)
        parent, read = pairs // vocabulary, pairs % vocabulary
        further = parent[1:] == parent[:-1]
        further = torch.cat([further.new_zeros(1), further])
        place = torch.where(further, rows - 1 + further.cumsum(0), parent)
        self.of[live] = place[which]
        parents = parent[further]
        if len(parents):
            self.held.branch(parents)
            self.position = torch.cat([self.position, self.position[parents]])
        # Of a row whose responses have all ended nobody reads what comes after any token.
        return token.new_zeros(len(self.position)).scatter_(0, place, read)


@dataclass
class Drawn:
    """What was drawn, by request and step; length 0 is a request still being written."""

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
    logits: Tensor, of: Tensor, uniforms: Tensor, sampling: Sampling
) -> tuple[Tensor, Tensor, Tensor]:
    """logits (rows, vocabulary), of (responses,): the row of each, uniforms (responses,) → token,
    its log-prob, the entropy, (responses,) each.

    By inverting the cumulative distribution, in float32. Log-prob and entropy are those of the
    distribution drawn from: after temperature, and renormalised after the top-p cut. At
    temperature 0 the most probable token, with its log-prob at temperature 1.
    """
    logits = logits.float()
    if sampling.temperature > 0:
        logits = logits / sampling.temperature
    logps = logits.log_softmax(-1)
    order = None
    if sampling.top_p < 1 and sampling.temperature > 0:
        logps, order = nucleus(logps, sampling.top_p)
    probs = logps.exp()
    if sampling.temperature > 0:
        cumulative = probs.cumsum(-1).index_select(0, of)
        targets = uniforms.unsqueeze(-1) * cumulative[:, -1:]
        choice = torch.searchsorted(cumulative, targets, right=True).squeeze(-1)
        choice = choice.clamp(max=logps.shape[-1] - 1)
    else:
        choice = logps.argmax(-1)[of]
    entropy = -(probs * logps.masked_fill(probs == 0, 0.0)).sum(-1)
    token = choice if order is None else order[of, choice]
    return token, logps[of, choice], entropy[of]


def nucleus(logps: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """logps (rows, vocabulary) → the log-probs of the most probable tokens that make up `top_p`,
    renormalised, greatest first, −inf past the cut, and which tokens they are; (rows, n) each.

    Few make it up mostly: so few are put into order, and more only where a row needs them. Of
    equal ones the lower token is first, however many are looked at.
    """
    for size in (size for size in CANDIDATES if size < logps.shape[-1]):
        order = logps.topk(size)[1].sort(-1).values
        kept, by = logps.gather(-1, order).sort(dim=-1, descending=True, stable=True)
        # What equals the last of them may stand for one that was left out.
        sure = kept.exp().masked_fill(kept <= kept[:, -1:], 0.0).sum(-1)
        if bool((sure >= top_p).all()):
            return _cut(kept, top_p), order.gather(-1, by)
    kept, order = logps.sort(dim=-1, descending=True, stable=True)
    return _cut(kept, top_p), order


def _cut(logps: Tensor, top_p: float) -> Tensor:
    """Log-probs in falling order, renormalised over the first that make up `top_p`, −inf beyond."""
    probs = logps.exp()
    before = probs.cumsum(-1) - probs  # the first token always stays
    return logps.masked_fill(before >= top_p, -torch.inf).log_softmax(-1)


def uniforms(seeds: Sequence[int], steps: int) -> Tensor:
    """(len(seeds), steps) float32 in [0, 1), a generator of its own for each row."""
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
        results: list[list[Completion | None]] = [[None] * len(group) for group in seeds]

        def hand_out(written: Sequence[FinishedResponse]) -> None:
            for prompt, number, completion in written:
                results[prompt][number] = completion
            if finished and written:
                finished(written)

        was_training = self.model.training
        self.model.eval()
        for batch in self._batches(prompts, seeds):
            self._generate(prompts, batch, sampling, hand_out)
        self.model.train(was_training)
        return results

    def _batches(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[Sequence[int]]
    ) -> Iterator[list[Request]]:
        """Prompts of like length together, at most batch_size responses each."""
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
        """Write a batch; responses are handed out as their rows leave it."""
        steps, device = sampling.max_tokens, self.model.device
        unique = list(dict.fromkeys(request.prompt for request in batch))
        row_of = {prompt: row for row, prompt in enumerate(unique)}
        held, logits, position = self._prefill([prompts[i] for i in unique], steps)
        held.begin(len(batch))
        rows = Rows(
            index=torch.arange(len(batch), device=device),
            uniforms=uniforms([request.seed for request in batch], steps).to(device),
            of=torch.tensor([row_of[request.prompt] for request in batch], device=device),
            position=position,
            held=held,
        )
        with held.reading(self.model):
            self._write(logits, rows, batch, sampling, hand_out)

    def _write(
        self,
        logits: Tensor,
        rows: Rows,
        batch: list[Request],
        sampling: Sampling,
        hand_out: Callable[[Sequence[FinishedResponse]], None],
    ) -> None:
        """Token after token of all responses; `logits` (rows, vocabulary) are of the first."""
        steps = sampling.max_tokens
        drawn = Drawn.empty(len(batch), steps, logits.device)
        for step in range(steps):
            token, logp, entropy = draw(logits, rows.of, rows.uniforms[:, step], sampling)
            drawn.tokens[rows.index, step] = token
            drawn.logps[rows.index, step] = logp
            drawn.entropies[rows.index, step] = entropy
            live = drawn.lengths[rows.index] == 0
            ended = torch.isin(token, self.eos) & live
            drawn.lengths[rows.index[ended]] = step + 1
            live &= ~ended
            before = rows.index
            if self._compact(rows, live):
                hand_out(self._written(drawn, before[~live], batch, steps))
                token, live = token[live], live[live]
            if not len(token) or step + 1 == steps:
                break
            logits = self._decode(rows.branch(token, live, logits.shape[-1]), rows)
        hand_out(self._written(drawn, rows.index, batch, steps))

    def _prefill(
        self, prompts: list[Sequence[int]], steps: int
    ) -> tuple[OwnKeys | SharedKeys, Tensor, Tensor]:
        """Read the prompts, left-padded → what was read, the logits after each one's last token
        (prompts, vocabulary), and the position that comes next (prompts, 1)."""
        device = self.model.device
        width = max(len(prompt) for prompt in prompts)
        padded = [[self.pad] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        ids = torch.tensor(padded, device=device)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        real = torch.arange(width, device=device) >= (width - lengths).unsqueeze(-1)
        held = keys_for(self.model, real, steps)
        output = self.model(
            input_ids=ids,
            attention_mask=real.long(),
            position_ids=(real.cumsum(-1) - 1).clamp(min=0),
            past_key_values=held.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return held, output.logits[:, -1], lengths[:, None]

    def _decode(self, token: Tensor, rows: Rows) -> Tensor:
        output = self.model(
            input_ids=token.unsqueeze(-1),
            position_ids=rows.position,
            use_cache=True,
            **rows.held.given(),
        )
        rows.position = rows.position + 1
        return output.logits[:, -1]

    def _compact(self, rows: Rows, live: Tensor) -> bool:
        """Drop what has ended, and say so, once it is enough to pay for moving what was read."""
        used = live.new_zeros(len(rows.position)).index_fill_(0, rows.of[live], True)
        written, held = torch.stack([live.sum(), used.sum()]).tolist()
        if written > COMPACT_BELOW * len(live) and held > COMPACT_BELOW * len(used):
            return False
        rows.select(live, used)
        return True

    def _written(
        self, drawn: Drawn, index: Tensor, batch: list[Request], steps: int
    ) -> list[FinishedResponse]:
        """The responses at `index` of the batch; all of them have ended, or no step is left."""
        columns = (drawn.lengths, drawn.tokens, drawn.logps, drawn.entropies)
        rows = zip(index.tolist(), *(column[index].tolist() for column in columns), strict=True)
        written = []
        for at, length, tokens, logps, entropies in rows:
            end = length or steps
            completion = Completion(
                tokens=tuple(tokens[:end]),
                logps=tuple(logps[:end]),
                entropy=sum(entropies[:end]) / end,
                truncated=length == 0,
                version=self.version,
            )
            written.append((batch[at].prompt, batch[at].number, completion))
        return written
