"""Floating-point operations of passes over texts, from a model's shape and the texts' lengths.

A multiplication and an addition are two operations. A weight matrix costs 2 operations per weight
and token forward, 2 backward for the gradient of its input, and 2 more for its own if it is
trained: 2N, and 6N in training (Kaplan et al., arXiv 2001.08361, section 2.1). Attention costs
4 × width per pair of a token and one that it sees, in each layer, and twice that backward. PaLM's
appendix B (Chowdhery et al., arXiv 2204.02311) has the same 12LHQT per token, where every token
sees all T; here a token sees only those before it, itself, and no more than a layer's window.

These are operations of the model, not of the hardware. A pass reads each prompt once and each
response whole, without padding. What an implementation saves (responses that share a prefix) or
computes again (`model.checkpoint_activations`, logits in chunks) changes nothing. Lookups, norms,
activations, softmax and the optimiser are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Text(NamedTuple):
    """Lengths in tokens: of a prompt, and of the responses to it that a pass reads.

    `known`: how many of the prompt's first tokens were read in an earlier pass, whose keys and
    values are at hand.
    """

    prompt: int
    responses: Sequence[int]
    known: int = 0


@dataclass(frozen=True)
class ModelFlops:
    """What decides a model's operations; NaN if the model is of a kind that is not counted.

    - `blocks`, `head`: weights of the blocks' linear layers and of the output layer
    - `trained_blocks`, `trained_head`: how many of them have gradients
    - `attention`: for each layer, heads × head width, and how many tokens it sees (None: all)
    """

    blocks: float
    head: float
    trained_blocks: float = 0
    trained_head: float = 0
    attention: tuple[tuple[int, int | None], ...] = ()

    def forward(self, texts: Iterable[Text]) -> float:
        """Return the operations of reading the texts and predicting the responses' tokens.

        They are also those of generating the responses.
        """
        return sum(
            2 * (self.blocks * _read(text) + self.head * sum(text.responses)) + self._attend(text)
            for text in texts
        )

    def backward(self, texts: Sequence[Text]) -> float:
        """Return the operations of the gradients: of activations, and of the trained weights."""
        of_weights = sum(
            2 * (self.trained_blocks * _read(text) + self.trained_head * sum(text.responses))
            for text in texts
        )
        return self.forward(texts) + of_weights + sum(self._attend(text) for text in texts)

    def _attend(self, text: Text) -> int:
        return sum(4 * width * _pairs(text, window) for width, window in self.attention)


UNKNOWN = ModelFlops(math.nan, math.nan)


def _read(text: Text) -> int:
    """Return how many tokens are read: the prompt once, and those that predict the responses'."""
    return text.prompt - 1 - text.known + sum(text.responses)


def _pairs(text: Text, window: int | None) -> int:
    """Return the pairs of a token that is read and one that it sees in a layer."""
    shared = _seen(text.prompt - 1, window)
    read = shared - _seen(text.known, window)
    return read + sum(
        _seen(text.prompt - 1 + response, window) - shared for response in text.responses
    )


def _seen(length: int, window: int | None) -> int:
    """Return Σ min(t, window) over t = 1 … length."""
    full = length if window is None else min(length, window)
    return full * (full + 1) // 2 + (length - full) * full
