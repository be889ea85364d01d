"""Which rows of a batch a rank works on, and how what ranks found becomes whole again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from experiments.learner.assemble import micro_batches

if TYPE_CHECKING:
    from experiments.learner.scoring import Tokens
    from experiments.runtimes.alone import Alone


def rows_at_once(tokens: Tokens, most: int, ranks: Alone) -> int:
    """Rows of a micro-batch: at most `most`, and so few that no rank is idle where it need not."""
    return min(most, -(-len(tokens.mask) // ranks.size))


def my_micro_batches(tokens: Tokens, most: int, ranks: Alone) -> Iterator[tuple[Tensor, bool]]:
    """Rows for this rank, and whether they count: see `Alone.share`."""
    return ranks.share(micro_batches(tokens, rows_at_once(tokens, most, ranks)))


def by_parts(
    of_rows: Callable[[Tensor, bool], Tensor], tokens: Tokens, most: int, ranks: Alone
) -> Tensor:
    """What `of_rows` gives for each micro-batch, (rows, time), put together: (batch, time)."""
    found = torch.zeros(tokens.mask.shape, device=tokens.mask.device)
    for rows, mine in my_micro_batches(tokens, most, ranks):
        part = of_rows(rows, mine)
        if mine:
            found[rows, : part.shape[1]] = part
    return ranks.sum(found)
