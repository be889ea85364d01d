"""Keys and values that our generation loop keeps between the answers of a conversation.

They are found by their tokens, so nothing is read in the place of something else. What is not found
is read anew, which changes no more than rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

TokenIds = tuple[int, ...]


class KeptKeys:
    """Keys and values of prompts and the responses to them, all but the last token of each."""

    def __init__(self) -> None:
        self._kept: dict[TokenIds, dict[TokenIds, Tensor]] = {}  # prompt → response → states

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

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
                fitting = (kept.get(tokens[:length]) for length in lengths)
                states = next((each for each in fitting if each is not None), None)
                if states is not None:
                    found[index, tokens] = states
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
