"""The interface of an engine, and how tokens are drawn: token ids in, responses and log-probs out.

A token is found by a uniform number in the cumulative distribution, so a response's draws are those
of its own stream of numbers, whatever stands beside it in the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from experiments.policy.policy import Policy, WeightSource, copy_weights
from experiments.sample import Completion

CANDIDATES = (16, 256)  # numbers of tokens to try for the nucleus before all


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Training uses top_p 1: the learner's log-probs have no cut-off."""

    max_tokens: int
    temperature: float = 1.0  # 0: the most probable token
    top_p: float = 1.0


@dataclass(frozen=True)
class Request:
    """What an engine is asked for: len(seeds[i]) responses to prompts[i].

    `begun[i][n]`: the tokens that response n to prompts[i] begins with; those behind them are
    returned. With `keep`, an engine may keep the keys and values of prompts and responses for a
    later request whose `begun` goes on from them, until `release_memory`. A later request that has
    one of their prompts has all responses to it, in the same places.

    With `continues` the tokens of `begun` are the response's own: `max_tokens` counts from its
    first token, and so do our engine's random numbers. A response that is continued from any of its
    tokens with its own seed is therefore the same response. What several `begun` have in common is
    read once.
    """

    prompts: Sequence[Sequence[int]]
    seeds: Sequence[Sequence[int]]
    sampling: Sampling
    begun: Sequence[Sequence[Sequence[int]]] | None = None
    keep: bool = False
    continues: bool = False

    def tokens_left(self, begun: Sequence[int]) -> int:
        """Return the most tokens that may follow `begun`."""
        return self.sampling.max_tokens - (len(begun) if self.continues else 0)

    def part(self, index: slice) -> Request:
        """Return the request for some of the prompts."""
        begun = None if self.begun is None else self.begun[index]
        return replace(self, prompts=self.prompts[index], seeds=self.seeds[index], begun=begun)


# (index of the prompt, index of the response to it, the response)
FinishedResponse = tuple[int, int, Completion]
OnFinished = Callable[[Sequence[FinishedResponse]], None] | None


class Engine(ABC):
    """Generates responses with the weights of `policy`."""

    name: str
    policy: Policy
    # Called while it generates, with the numbers of tokens drawn; for the display only.
    on_tokens: Callable[[int], None] | None = None

    @property
    def version(self) -> int:
        """The version of the weights that it generates with."""
        return self.policy.version

    @property
    def description(self) -> str:
        """The name and the release of the library behind it, for run.json."""
        return self.name

    @abstractmethod
    def generate(self, request: Request, finished: OnFinished = None) -> list[list[Completion]]:
        """Return the responses to each prompt, each from the random stream of its seed.

        `finished` receives each response once, soon after it ended, while others are generated. It
        must not use the model.
        """

    def sync(self, weights: WeightSource) -> None:
        """Take over these weights and their version."""
        if weights is not self.policy:
            copy_weights(weights, into=self.policy)

    def release_memory(self) -> None:  # noqa: B027  most engines hold nothing between calls
        """Release generation-only memory: the KV cache, and what `generate` was to keep."""


# Drawing tokens


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
