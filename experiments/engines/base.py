"""The interface of an engine: prompts as token ids in, sampled responses and log-probs out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.policy.policy import copy_weights

if TYPE_CHECKING:
    from experiments.policy.policy import Policy, WeightSource


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Training uses top_p 1: the learner's log-probs have no cut-off."""

    max_tokens: int
    temperature: float = 1.0  # 0: the most probable token
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class Completion:
    """One response, EOS included where there is one."""

    tokens: tuple[int, ...]
    logps: tuple[float, ...]  # of the distribution that was sampled from
    # The policy's mean entropy over the response's tokens, in nats, at temperature 1 and without
    # top-p; NaN: unknown
    entropy: float
    truncated: bool  # max_tokens came before EOS
    version: int  # of the weights that generated it


# (index of the prompt, index of the response to it, the response)
FinishedResponse = tuple[int, int, Completion]


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
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        finished: Callable[[Sequence[FinishedResponse]], None] | None = None,
        begun: Sequence[Sequence[Sequence[int]]] | None = None,
        keep: bool = False,
    ) -> list[list[Completion]]:
        """Return len(seeds[i]) responses to prompts[i], each from the random stream of its seed.

        `finished` receives each response once, soon after it ended, while others are generated. It
        must not use the model.

        `begun[i][n]` are the tokens that response n to prompts[i] begins with; those behind them
        are returned. With `keep`, an engine may keep the keys and values of prompts and responses
        for a later call whose `begun` goes on from them, until `release_memory`. A later call that
        has their prompts has them all, in the same places.
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
