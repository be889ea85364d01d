"""The interface of an engine: prompts as token ids in, sampled responses and log-probs out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from experiments.policy.policy import copy_weights
from experiments.sample import Completion

if TYPE_CHECKING:
    from experiments.policy.policy import Policy, WeightSource


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
    """

    prompts: Sequence[Sequence[int]]
    seeds: Sequence[Sequence[int]]
    sampling: Sampling
    begun: Sequence[Sequence[Sequence[int]]] | None = None
    keep: bool = False

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

    @abstractmethod
    def sync(self, weights: WeightSource) -> None:
        """Take over these weights and their version."""

    def release_memory(self) -> None:  # noqa: B027  most engines hold nothing between calls
        """Release generation-only memory: the KV cache, and what `generate` was to keep."""

    def _copy(self, weights: WeightSource) -> None:
        """Copy the weights into the engine's policy, unless they are that policy."""
        if weights is not self.policy:
            copy_weights(weights, into=self.policy)
