"""What an engine is: prompts as token ids in, sampled responses with their log-probs out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.policy.weights import copy_weights, weights_version

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Training takes top_p 1: the learner's log-probs know no cut."""

    max_tokens: int
    temperature: float = 1.0  # 0: the most probable token
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class Completion:
    """One response, EOS included where there is one."""

    tokens: tuple[int, ...]
    logps: tuple[float, ...]  # of the distribution that was sampled from
    entropy: float  # its mean entropy over the response's tokens, in nats; NaN: not told
    truncated: bool  # max_tokens came before EOS
    version: int  # optimiser steps that the weights which wrote it had seen


# (prompt, response to it, as they were asked for; what was written)
FinishedResponse = tuple[int, int, Completion]


class Engine(ABC):
    """Writes responses with the weights of `model`."""

    name: str
    model: nn.Module

    @property
    def version(self) -> int:
        """Of the weights that it writes with: optimiser steps they have seen."""
        return weights_version(self.model)

    @property
    def described(self) -> str:
        """For people: the name, and the release of what is behind it."""
        return self.name

    @abstractmethod
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        finished: Callable[[Sequence[FinishedResponse]], None] | None = None,
    ) -> list[list[Completion]]:
        """len(seeds[i]) responses to prompts[i], each drawn from the random stream of its seed.

        `finished` is given each response once, soon after it ended, while others are written: the
        model is not to be used in it.
        """

    @abstractmethod
    def sync(self, model: nn.Module) -> None:
        """Take over the weights of `model`, and their version."""

    def rest(self) -> None:  # noqa: B027  most hold nothing meanwhile
        """Synced, but there is nothing to write: let go of what is only for writing."""

    def _copy(self, model: nn.Module) -> None:
        """Bring the engine's own module, where it has one, to the plain weights of `model`."""
        if model is not self.model:
            copy_weights(model, into=self.model)
